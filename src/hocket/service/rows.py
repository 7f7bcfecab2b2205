"""What the API shows of jobs and nodes: plain data, from a snapshot and the catalogue."""

from __future__ import annotations

from collections import Counter
from math import isfinite
from shlex import quote
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from hocket.control.ports import LiveExecutor
from hocket.estimators import quality
from hocket.model.curve import Point
from hocket.model.job_spec import shown_spec
from hocket.model.shortage import Shortages, Wait, wait_of
from hocket.model.snapshot import Snapshot
from hocket.model.view import Hold, JobView, Tier
from hocket.policies.registry import BoundPolicy
from hocket.service.ignored_options import ignored_options
from hocket.service.node_reserve import reservation_rows
from hocket.service.record import Record, lines_of


class JobRow(Struct, frozen=True, gc=False):
    """One job in one line."""

    id: str
    owner: str
    state: str
    size: int
    gpus: list[str]
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    waited_s: float
    ran_s: float
    epoch: int
    metrics: dict[str, float]
    until: str
    attempts: int
    reason: str
    saved_s: float | None
    lost_s: float
    lost_epochs: int
    step: int
    lost_steps: int
    kind: str
    kept: str  # where the state of a job is that is paused; empty if it runs, has none or is over


def row(
    record: Record,
    view: JobView | None,
    snapshot: Snapshot,
    now_s: float,
    queue_reason: str = "",
    shortages: Shortages | None = None,
) -> JobRow:
    """One job in one line; `queue_reason` is what was last said of all that wait.

    Rows of one snapshot share `shortages`.
    """
    job = record.job
    over = view is None
    return JobRow(
        job.id, job.owner, state_of(record, view), 0 if view is None else view.size,
        [] if view is None or not view.tenancies else held_gpus(view),
        record.submitted_s, record.started_s, record.ended_s, round(record.waited_at(now_s), 3),
        round(record.ran_s if view is None else view.ran_at(now_s), 3), record.epoch, record.metrics,
        "" if job.criterion is None else str(job.criterion),
        record.attempts,
        record.reason if over else _short_reason(record, view, snapshot, queue_reason, shortages),
        record.saved_s, round(record.lost_s, 3), record.lost_epochs, record.step, record.lost_steps,
        str(job.kind), kept_words(view),
    )  # fmt: skip


def kept_words(view: JobView | None) -> str:
    """Where the state of a job is that is paused, in words; empty if it runs, has none or is over."""
    if view is None or view.tenancies:
        return ""
    if view.suspended is not None:
        return f"in memory ({view.suspended.mem_mib:,.0f} MiB)"
    return "on disk" if view.tier is Tier.DISK else ""


def _short_reason(
    record: Record, view: JobView | None, snapshot: Snapshot, queue_reason: str, shortages: Shortages | None
) -> str:
    """What a waiting job is short of, rather than what the policy says of all that wait; else its reason."""
    said = _reason(record, view, snapshot, queue_reason)
    if view is None or view.partitions or view.held is not None or view.verdict or snapshot.short_of_quota(view):
        return said
    if not said.startswith("waits"):  # It failed, or was paused, and that is what its user asks about.
        return said
    short = (shortages or Shortages(snapshot)).words(view)
    return f"waits for {short}" if short else said


def _reason(record: Record, view: JobView | None, snapshot: Snapshot, queue_reason: str) -> str:
    if view is None:
        return record.reason
    return snapshot.short_of_quota(view) or view.reason or queue_reason or "waits: there is no room for it yet"


def state_of(record: Record, view: JobView | None) -> str:
    """Where a job stands, in one word; the verdict of one that is over."""
    return (record.verdict or "over") if view is None else live_state(view)


def live_state(view: JobView) -> str:
    """Where a live job stands, in one word."""
    if view.verdict:
        return "ending"
    if view.held is not None and not view.tenancies:
        return "held"
    return str(view.state)


def live_counts(snapshot: Snapshot) -> Counter[str]:
    """How many live jobs stand where."""
    return Counter(live_state(view) for view in snapshot.jobs.values())


def live_counts_by_owner(snapshot: Snapshot) -> Counter[tuple[str, str]]:
    """The same by state and owner."""
    return Counter((live_state(view), view.job.owner) for view in snapshot.jobs.values())


def held_gpus(view: JobView) -> list[str]:
    """The GPUs that a job holds, or that it gets, as `node:index`."""
    held = [t.holding or t.coming for t in view.tenancies]
    return [f"{part.node}:{gpu}" for h in held if h is not None for part in h.slices for gpu in part.gpus]


def shown(
    record: Record,
    view: JobView | None,
    snapshot: Snapshot,
    use: LiveExecutor | None,
    now_s: float,
    queue_reason: str,
    policy: BoundPolicy,
    waits_for: str | None = None,
) -> dict[str, Any]:
    """All about one job, but for what may be secret; `policy` is the one that decides at present.

    `use` is asked what it was seen to use, if it is there; `waits_for` is what `why` says, if that was asked: it takes
    long to find.
    """
    observations = view.observations if view is not None else record.observations
    return {
        **asdict(row(record, view, snapshot, now_s, queue_reason)),
        "waits_for": _wait(view, snapshot, now_s, queue_reason).words if waits_for is None else waits_for,
        "job": shown_spec(record.job),
        "failures": view.failures if view is not None else 0,
        "protected": view.protected_at(now_s) if view is not None else "",
        "observations": [
            {"at_s": o.at_s, "epoch": o.epoch, "step": o.step, "metrics": _finite(o.metrics)} for o in observations
        ],
        "curve": [
            {"at_s": p.at_s, "epoch": p.epoch, "step": p.step, "metrics": _finite(p.metrics)}
            for p in (record.curve.points if record.curve is not None else ())
        ],
        "predicted": predicted(record, view),
        "attempt_list": [asdict(attempt) for attempt in list(record.tries)],
        "use": {} if use is None else use.usage(record.job.id),
        "use_over_time": [] if use is None else use.usage_over_time(record.job.id),
        "warnings": [
            *record.warnings,
            *([record.unseen] if record.unseen else []),
            *(ignored_options(record.job, policy) if view is not None else ()),
        ],
    }


def predicted(record: Record, view: JobView | None) -> list[dict[str, float]]:
    """How the metric of its goal will go on, if the job runs; an epoch or step takes as long as those before did.

    From what it has reported, for not every policy has beliefs.
    """
    goal = record.job.goal
    if view is None or not view.size or goal is None or not view.observations:
        return []
    reports = [*(record.curve.points if record.curve is not None else ()), *view.observations]
    unit = "epoch" if view.observations[-1].epoch else "step"
    values = {getattr(r, unit): r.metrics[goal.metric] for r in reports if goal.metric in r.metrics}
    seen = [Point(float(x), value, 0.0, 1) for x, value in sorted(values.items()) if x >= 1 and isfinite(value)]
    last, ran_s = view.observations[-1], view.ran_at(view.observations[-1].at_s)
    return [
        {
            "at_s": last.at_s + (p.x / seen[-1].x - 1) * ran_s,
            "epoch": 0,
            "step": 0,
            unit: p.x,
            "value": p.mean,
            "sd": p.sd,
        }
        for p in quality.foreseen(seen, goal)
    ]


def _finite(metrics: dict[str, float]) -> dict[str, float | None]:
    return {name: value if abs(value) < float("inf") else None for name, value in metrics.items()}


def why(record: Record, view: JobView | None, snapshot: Snapshot, now_s: float, queue_reason: str) -> dict[str, Any]:
    """The reasons of past and present decisions for a job, and what it waits for."""
    wait = _wait(view, snapshot, now_s, queue_reason)
    return {
        "id": record.job.id,
        "state": state_of(record, view),
        "kept": kept_words(view),
        "now": _reason(record, view, snapshot, queue_reason),
        "waits_for": wait.words,
        "short_of": wait.short_of,
        "warning": record.unseen,
        "expected_s": wait.expected_s if wait.expected_s is None else max(0.0, round(wait.expected_s, 1)),
        "past": lines_of(record),
    }


def _wait(view: JobView | None, snapshot: Snapshot, now_s: float, queue_reason: str) -> Wait:
    """What a job waits for; nothing if it has a place or ends."""
    if view is None or view.partitions or view.verdict:
        return Wait((), "", None)
    if view.held is None:
        return wait_of(view, snapshot, now_s, view.reason or queue_reason)
    words = view.reason.removeprefix("waits: ")
    if view.held is Hold.PAUSED:
        words = f"its user to resume it: hocket resume {quote(view.id)}"
    return Wait((), words, view.held_until_s - now_s if view.held_until_s is not None else None)


def nodes(snapshot: Snapshot, now_s: float) -> list[dict[str, Any]]:
    """Every node, its reservations, and which jobs hold its GPUs in fact."""
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
            "drained": v.drained,
            "cleared": v.cleared,
            "reservations": reservation_rows(snapshot, v.node.id, now_s),
            "gpu_kind": v.node.gpu_kind,
            "gpus": [{"index": i, "job": holders.get((v.node.id, i), "")} for i in range(v.node.gpus)],
            "cores": v.node.cores,
            "mem_mib": v.node.mem_mib,
        }
        for v in snapshot.nodes.values()
    ]
