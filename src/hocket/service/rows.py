"""What the API shows of jobs and nodes: plain data, from a snapshot and the catalogue."""

from __future__ import annotations

from typing import Any

from hocket.executors.agents.executor import AgentExecutor
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.service.catalogue import Record, lines_of


def row(record: Record, view: JobView | None, now_s: float) -> dict[str, Any]:
    """One job in one line."""
    return {
        "id": record.job.id,
        "owner": record.job.owner,
        "state": state_of(record, view),
        "size": view.size if view is not None else 0,
        "gpus": _gpus(view),
        "submitted_s": record.submitted_s,
        "started_s": record.started_s,
        "ended_s": record.ended_s,
        "waited_s": round(record.waited_at(now_s), 3),
        "ran_s": round(view.ran_at(now_s) if view is not None else record.ran_s, 3),
        "epoch": record.epoch,
        "metrics": record.metrics,
        "until": str(record.job.criterion) if record.job.criterion is not None else "",
        "attempts": view.starts if view is not None else record.attempts,
        "reason": (view.reason if view is not None else "") or record.reason,
    }


def state_of(record: Record, view: JobView | None) -> str:
    """Where a job stands, in one word; the verdict of one that is over."""
    if view is None:
        return record.verdict or "over"
    if view.held is not None and not view.tenancies:
        return "held"
    return str(view.state)


def _gpus(view: JobView | None) -> list[str]:
    held = [t.holding or t.coming for t in view.tenancies] if view is not None else []
    return [f"{part.node}:{gpu}" for h in held if h is not None for part in h.slices for gpu in part.gpus]


def shown(record: Record, view: JobView | None, executor: AgentExecutor, now_s: float) -> dict[str, Any]:
    """All about one job, but for what may be secret."""
    job, launch = record.job, record.job.launch
    submitted: dict[str, Any] = {
        "command": list(job.command),
        "sizes": list(job.sizes),
        "gpus": job.demand.gpus,
        "cores": job.demand.cores,
        "mem_mib": job.demand.mem_mib,
        "gpu_kinds": list(job.gpu_kinds),
        "gpu_mem_mib": job.gpu_mem_mib,
        "priority": job.priority,
        "weight": job.weight,
        "deadline_s": job.deadline_s,
        "until": str(job.criterion) if job.criterion is not None else "",
        "after": list(job.after),
        "retries": job.retries,
        "backoff_s": job.backoff_s,
        "limit_s": job.limit_s,
        "warm": job.warm,
    }
    if launch is not None:
        submitted |= {
            "cwd": launch.cwd,
            "env": sorted(launch.env),  # names only
            "resume": list(launch.resume),
            "stop_signal": launch.stop_signal,
            "checkpoint_signal": launch.checkpoint_signal,
            "grace_s": launch.grace_s,
            "hang_s": launch.hang_s,
            "progress": launch.progress,
        }
    observations = view.observations if view is not None else ()
    return {
        **row(record, view, now_s),
        "job": submitted,
        "failures": view.failures if view is not None else 0,
        "observations": [{"at_s": o.at_s, "epoch": o.epoch, "metrics": _finite(o.metrics)} for o in observations],
        "use": executor.use.get(job.id, {}),
        "warnings": list(executor.warnings.get(job.id, ())),
    }


def _finite(metrics: dict[str, float]) -> dict[str, float | None]:
    return {name: value if abs(value) < float("inf") else None for name, value in metrics.items()}


def why(record: Record, view: JobView | None, snapshot: Snapshot, now_s: float) -> dict[str, Any]:
    """The reasons of past and present decisions for a job, and what it waits for."""
    waits_for, expected_s = "", None
    if view is not None and not view.partitions and not view.verdict:
        if view.held is not None:
            waits_for = view.reason
            expected_s = view.held_until_s - now_s if view.held_until_s is not None else None
        else:
            waits_for, expected_s = _room(view, snapshot, now_s)
    return {
        "id": record.job.id,
        "state": state_of(record, view),
        "now": (view.reason if view is not None else "") or record.reason or "waits: it has not been decided on",
        "waits_for": waits_for,
        "expected_s": expected_s if expected_s is None else max(0.0, round(expected_s, 1)),
        "past": lines_of(record),
    }


def _room(view: JobView, snapshot: Snapshot, now_s: float) -> tuple[str, float | None]:
    """What would have to be free, and when that may be, if those who run end when they are believed to."""
    needs = view.job.sizes[0] * view.job.demand.gpus
    free = snapshot.capacity.gpus
    said = f"{needs} GPUs, of which {free} are free" if needs else "its cores and memory on one node"
    ends: list[tuple[float, int]] = []
    for other in snapshot.jobs.values():
        if other.gpus and (left := other.remaining_s(now_s, other.size)) is not None:
            ends.append((left, other.gpus))
    for left, gpus in sorted(ends):
        free += gpus
        if free >= needs:
            return said, left
    return said, None


def nodes(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every node and who holds its GPUs in fact."""
    holders: dict[tuple[str, int], str] = {}
    for view in snapshot.jobs.values():
        for tenancy in view.tenancies:
            held = tenancy.holding or tenancy.coming
            for part in held.slices if held is not None else ():
                holders.update({(part.node, gpu): view.job.id for gpu in part.gpus})
    return [
        {
            "id": v.node.id,
            "up": v.up,
            "gpu_kind": v.node.gpu_kind,
            "gpus": [{"index": i, "job": holders.get((v.node.id, i), "")} for i in range(v.node.gpus)],
            "cores": v.node.cores,
            "mem_mib": v.node.mem_mib,
        }
        for v in snapshot.nodes.values()
    ]
