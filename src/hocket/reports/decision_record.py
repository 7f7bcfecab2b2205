"""Every decision of a run as columns: what the policy knew, what it decided, and how the jobs ended.

Four files of NumPy arrays, and `about.json`, which describes the run; docs/record.md has all columns:

    decisions.npz   a row per decision: its time, numbers of jobs, and where its rows in the two files below begin
    rows.npz        a row for every tenant whose place or size a decision changed, for every task that stays on a node
                    that another one leaves, for every job that it ended, and for the first jobs that still wait
    servers.npz     a row for every node with another utilisation than at the decision before
    jobs.npz        a row per job with how it ended, and its tasks and edges, which no decision changes

GPUs have one numbering across all nodes; -1 is the queue. Only snapshots and plans are read, so any policy works.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hocket.control.ports import Cycle, Header
from hocket.model.criterion import Goal
from hocket.model.event import EpochEnded, JobSubmitted, ProgressReported
from hocket.model.job import Job
from hocket.model.measured import measured_share
from hocket.model.partition import Partition
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, demand_of
from hocket.model.view import JobView, Use
from hocket.reports.account import account

MOST_WAITING = 64  # jobs of a decision's queue that get a row, though nothing changes for them
ROW = (
    "decision", "job", "task", "from_gpu", "to_gpu", "from_size", "to_size", "ends", "urgency", "epoch",
    "loss", "loss_fell", "to_deadline_s", "left_s", "waited_s", "ran_s",
    "gpu_load", "gpu_load_measured", "cores", "mem_mib", "net_mbps",
)  # fmt: skip
DECISION = ("at_s", "live", "waiting", "placed", "first_row", "first_server_row")
SHARES = ("gpus", "gpus_measured", "cores", "mem_mib", "net_mbps")
JOB = ("number", "submitted_s", "urgency", "deadline_s", "run_s", "tasks")
TASK = ("job", "share", "gpu_load", "cores", "mem_mib", "net_mbps", "is_parameter_server")
EDGE = ("job", "source", "target", "mib")
_Place = tuple[int, int]  # the first GPU, replicas
_Tenant = tuple[str, str]  # job and task
_QUEUE: _Place = (-1, 0)
_FILES = ("decisions", "rows", "servers", "jobs")


class DecisionRecord:
    """Collects decisions; `write` writes them to a folder."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._first: dict[str, int] = {}  # node → its first GPU
        gpus = 0
        for node in header.nodes:
            self._first[node.id] = gpus
            gpus += node.gpus
        self._decisions, self._rows = array("d"), array("d")
        self._servers = Servers(header)
        self._jobs, self._tasks, self._edges = array("d"), array("d"), array("d")
        self._names: dict[int, tuple[str, float, str]] = {}  # by number: id, when it was submitted, model
        self._made = 0

    def __len__(self) -> int:
        return self._made

    def watching(self, decide: Callable[[Snapshot], Plan]) -> Callable[[Snapshot], Plan]:
        """The same policy, with every decision recorded."""

        def watched(snapshot: Snapshot) -> Plan:
            plan = decide(snapshot)
            self.add(snapshot, plan)
            return plan

        return watched

    def add(self, snapshot: Snapshot, plan: Plan) -> None:
        """Record one decision."""
        self._decisions.extend(
            (
                snapshot.now_s, len(snapshot.jobs), snapshot.waiting.count, snapshot.placed.count,
                len(self._rows) // len(ROW), len(self._servers),
            )
        )  # fmt: skip
        self._servers.follow(self._made, snapshot)
        old = [p for pid in (*plan.drop, *(p.id for p in plan.put)) if (p := snapshot.partitions.get(pid)) is not None]
        before, after = self._places(old), self._places(plan.put)
        jobs = snapshot.jobs  # Plans that name unknown jobs are refused later.
        places = {
            tenant: (was, now)
            for tenant in before.keys() | after.keys()
            if tenant[0] in jobs and (was := before.get(tenant, _QUEUE)) != (now := after.get(tenant, _QUEUE))
        }
        places |= {tenant: (place, place) for tenant, place in self._staying(old, places).items()}
        for tenant in sorted(places, key=lambda t: (jobs[t[0]].number, t[1])):
            self._add_row(snapshot, *tenant, *places[tenant])
        for job_id in sorted((j for j in plan.ends if j in jobs), key=lambda j: jobs[j].number):
            self._add_row(snapshot, job_id, "", _QUEUE, _QUEUE, ends=True)
        moved = {job for job, _task in after} | plan.ends.keys()
        for entry, _n in zip(snapshot.waiting, range(MOST_WAITING), strict=False):
            if entry[-1] not in moved:
                self._add_row(snapshot, entry[-1], "", _QUEUE, _QUEUE)
        self._made += 1

    def _places(self, partitions: Iterable[Partition]) -> dict[_Tenant, _Place]:
        return {(t.job, t.task): (self._gpu(p), sum(t.replicas)) for p in partitions for t in p.tenants}

    def _staying(self, old: list[Partition], changed: dict[_Tenant, tuple[_Place, _Place]]) -> dict[_Tenant, _Place]:
        """Tasks that stay on a node that another one leaves: these were the alternatives."""
        leaving = {t for t, (was, now) in changed.items() if t[1] and was[0] != now[0]}
        left = {s.node for p in old if any((t.job, t.task) in leaving for t in p.tenants) for s in p.slices}
        there = self._places(p for node in left for p in self._servers.on(node))
        return {tenant: place for tenant, place in there.items() if tenant[1] and tenant not in changed}

    def _gpu(self, partition: Partition) -> int:
        part = partition.slices[0]
        return self._first.get(part.node, 0) + (part.gpus[0] if part.gpus else 0)

    def _add_row(
        self, snapshot: Snapshot, job_id: str, task: str, was: _Place, now: _Place, *, ends: bool = False
    ) -> None:
        view = snapshot.jobs[job_id]
        job, now_s = view.job, snapshot.now_s
        if view.number not in self._names:
            self._add_job(view)
        at = -1
        if task and job.tasks is not None:
            plain = task.partition("#")[0]
            at = next(k for k, t in enumerate(job.tasks.tasks) if t.id == plain)
        demand = demand_of(job, task)
        load, share = demand.gpu_load, measured_share(view)
        left_s = view.remaining_s(now_s)
        self._rows.extend(
            (
                self._made, view.number, at, was[0], now[0], was[1], now[1], ends, job.urgency, view.epoch,
                *_losses(view),
                nan if job.deadline_s is None else view.submitted_s + job.deadline_s - now_s,
                nan if left_s is None else left_s, view.waited_at(now_s), view.ran_at(now_s),
                load, nan if share is None else load * share, demand.cores, demand.mem_mib, demand.net_mbps,
            )
        )  # fmt: skip

    def _add_job(self, view: JobView) -> None:
        job, run_s = view.job, view.beliefs.run_s
        self._names[view.number] = (job.id, view.submitted_s, job.model)
        tasks = job.tasks.tasks if job.tasks is not None else ()
        deadline_s = nan if job.deadline_s is None else job.deadline_s
        run_mean_s = nan if run_s is None else run_s.mean
        self._jobs.extend((view.number, view.submitted_s, job.urgency, deadline_s, run_mean_s, len(tasks)))
        index = {t.id: k for k, t in enumerate(tasks)}
        for t in tasks:
            d = t.demand
            load = d.gpu_load
            self._tasks.extend((view.number, t.share, load, d.cores, d.mem_mib, d.net_mbps, t.is_parameter_server))
        for edge in job.tasks.edges if job.tasks is not None else ():
            self._edges.extend((view.number, index[edge.source], index[edge.target], edge.mib))

    def write(self, folder: Path, journal: Iterable[Cycle] = ()) -> list[Path]:
        """Write all files, with how the jobs ended and their first losses, from the journal.

        Each file is written whole or not at all; `about.json` is removed first and written last, so if it exists, all
        files are from the same run.
        """
        import numpy as np

        known = job_outcomes(self.header, journal)
        ended = [known.get((name, submitted_s), JobOutcome()) for name, submitted_s, _model in self._names.values()]
        jobs = table(self._jobs, JOB)
        jobs |= {
            "id": np.array([name for name, _submitted_s, _model in self._names.values()]),
            "model": np.array([model for _name, _submitted_s, model in self._names.values()]),
            "verdict": np.array([fate.verdict for fate in ended]),
        }
        for name in ("ended_s", "deadline_met", "goal_met", "best", "best_by_deadline"):
            jobs[name] = _compact(np.array([getattr(fate, name) for fate in ended], dtype=float))
        jobs |= {f"task_{k}": v for k, v in table(self._tasks, TASK).items()}
        jobs |= {f"edge_{k}": v for k, v in table(self._edges, EDGE).items()}
        rows = table(self._rows, ROW)
        # A view has only the last reports.
        first_loss = {number: fate.first_loss for number, fate in zip(self._names, ended, strict=True)}
        began = np.array([first_loss[number] for number in rows["job"].tolist()], dtype=float)
        rows["loss_fell_in_all"] = _compact(began - rows["loss"])
        files = (table(self._decisions, DECISION), rows, self._servers.columns(), jobs)
        about = {
            "policy": self.header.policy,
            "params": self.header.params,
            "workload": self.header.workload,
            "seed": self.header.seed,
            "decisions": self._made,
            "nodes": self.header.nodes,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "about.json").unlink(missing_ok=True)
        written = []
        for name, columns in zip(_FILES, files, strict=True):
            part, path = folder / f".{name}.part.npz", folder / f"{name}.npz"
            np.savez_compressed(part, **columns)
            os.replace(part, path)
            written.append(path)
        part, path = folder / ".about.json.part", folder / "about.json"
        part.write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=2))
        os.replace(part, path)
        return [*written, path]


class Servers:
    """For each node, the shares of GPUs, cores, memory and network that tenants request, where they change.

    For GPUs also the measured share, where there is one.
    """

    def __init__(self, header: Header) -> None:
        self._number = {node.id: n for n, node in enumerate(header.nodes)}
        self._has = [(node.gpus, node.cores, node.mem_mib, node.net_mbps) for node in header.nodes]
        self._last: list[tuple[float, ...]] = [(0.0,) * len(SHARES)] * len(header.nodes)
        self._seen: dict[str, Partition] = {}
        self._uses: dict[str, Use | None] = {}  # of the jobs in them
        self._on: list[dict[str, Partition]] = [{} for _ in header.nodes]
        self._where, self._shares = array("q"), array("f")  # decision and node; what is used

    def __len__(self) -> int:
        return len(self._where) // 2

    def follow(self, decision: int, snapshot: Snapshot) -> None:
        """Record changes since the last decision. Only nodes with changes are looked at."""
        partitions, jobs, seen = snapshot.partitions.data(), snapshot.jobs.data(), self._seen
        gone = [old for pid, old in seen.items() if partitions.get(pid) is not old]
        new = [now for pid, now in partitions.items() if seen.get(pid) is not now]
        measured = {j for j, use in self._uses.items() if (view := jobs.get(j)) is not None and view.use is not use}
        if not gone and not new and not measured:
            return
        self._seen = dict(partitions)
        self._uses = {t.job: jobs[t.job].use for p in partitions.values() for t in p.tenants}
        touched = {node for j in measured for pid in jobs[j].partitions for node in self._nodes(partitions[pid])}
        for there, are in ((gone, False), (new, True)):
            for partition in there:
                for node in self._nodes(partition):
                    touched.add(node)
                    if are:
                        self._on[node][partition.id] = partition
                    else:
                        self._on[node].pop(partition.id, None)
        for node in sorted(touched):
            used = self._used(node, jobs)
            if used != self._last[node]:
                self._last[node] = used
                self._where.extend((decision, node))
                self._shares.extend(used)

    def _nodes(self, partition: Partition) -> set[int]:
        return {self._number[s.node] for s in partition.slices if s.node in self._number}

    def on(self, node: str) -> Iterable[Partition]:
        """The partitions on a node."""
        return self._on[self._number[node]].values() if node in self._number else ()

    def _used(self, node: int, jobs: dict[str, JobView]) -> tuple[float, ...]:
        gpus = measured = cores = mem_mib = net_mbps = 0.0
        for partition in self._on[node].values():
            for tenant in partition.tenants:
                view = jobs[tenant.job]
                demand, share = demand_of(view.job, tenant.task), measured_share(view)
                for part, replicas in zip(partition.slices, tenant.replicas, strict=True):
                    if self._number.get(part.node) == node:
                        load = replicas * demand.gpu_load
                        gpus += load
                        measured += load if share is None else load * share
                        cores += replicas * demand.cores
                        mem_mib += replicas * demand.mem_mib
                        net_mbps += replicas * demand.net_mbps
        has = self._has[node]
        return (
            gpus / has[0] if has[0] else 0.0,
            measured / has[0] if has[0] else 0.0,
            cores / has[1] if has[1] else 0.0,
            mem_mib / has[2] if has[2] else 0.0,
            net_mbps / has[3] if has[3] else 0.0,
        )

    def columns(self) -> dict[str, Any]:
        """All of it."""
        import numpy as np

        where = np.array(self._where, dtype=np.int32).reshape(-1, 2)
        shares = np.array(self._shares, dtype=np.float32).reshape(-1, len(SHARES))
        return {"decision": where[:, 0], "node": where[:, 1], **{k: shares[:, i] for i, k in enumerate(SHARES)}}


def table(values: array[float], names: tuple[str, ...]) -> dict[str, Any]:
    """Rows in one flat array, as columns."""
    import numpy as np

    rows = np.frombuffer(values, dtype=float).reshape(-1, len(names)) if values else np.empty((0, len(names)))
    return {name: _compact(rows[:, i]) for i, name in enumerate(names)}


def _losses(view: JobView) -> tuple[float, float]:
    """The latest loss, and by how much it fell in the last epoch."""
    losses = {o.epoch: x for o in view.observations if isfinite(x := o.metrics.get(LOSS, inf))}
    values = list(losses.values())
    if not values:
        return nan, nan
    return values[-1], (values[-2] - values[-1]) if len(values) > 1 else nan


def _compact(column: Any) -> Any:
    """Integers as integers, others as 32-bit floats, except large ones (times late in a run)."""
    import numpy as np

    if len(column) and np.isfinite(column).all() and (column == np.round(column)).all() and abs(column).max() < 2**31:
        return column.astype(np.int32)
    return column if np.nanmax(abs(column), initial=0.0) > 1e5 else column.astype(np.float32)


LOSS = "loss"  # the metric that says how much there is left to learn
UNKNOWN = -1  # instead of 0 (no) and 1 (yes): there is no deadline or goal, or the job has not ended


class JobOutcome(Struct, frozen=True, gc=False):
    """How a job ended. The best are of its goal's metric; all values are NaN where it reported none."""

    ended_s: float = nan
    verdict: str = ""  # empty while it is unfinished
    deadline_met: int = UNKNOWN
    goal_met: int = UNKNOWN
    best: float = nan
    best_by_deadline: float = nan
    first_loss: float = nan


class _Reported(Struct, gc=False):
    job: Job
    submitted_s: float
    best: float = nan
    by_deadline: float = nan
    first_loss: float = nan


def job_outcomes(header: Header, cycles: Iterable[Cycle]) -> dict[tuple[str, float], JobOutcome]:
    """By job id and submission time, since an id may be used again."""
    kept = list(cycles)
    reported = _reported(kept)
    found = {}
    for record in account(header, kept).jobs:
        key = (record.job.id, record.submitted_s)
        seen = reported.get(key)
        values = (nan, nan, nan) if seen is None else (seen.best, seen.by_deadline, seen.first_loss)
        over = record.ended_s is not None
        found[key] = JobOutcome(
            nan if record.ended_s is None else record.ended_s,
            record.verdict,
            _yes(record.deadline_met) if over else UNKNOWN,
            _yes(record.goal_met) if over else UNKNOWN,
            *values,
        )
    return found


def _reported(cycles: list[Cycle]) -> dict[tuple[str, float], _Reported]:
    found: dict[tuple[str, float], _Reported] = {}
    live: dict[str, _Reported] = {}
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, JobSubmitted):
                new = live[event.job.id] = _Reported(event.job, event.at_s)
                found[event.job.id, event.at_s] = new
            elif isinstance(event, EpochEnded | ProgressReported) and (seen := live.get(event.job)) is not None:
                if not isfinite(seen.first_loss) and isfinite(loss := event.metrics.get(LOSS, nan)):
                    seen.first_loss = loss
                goal = seen.job.goal
                value = nan if goal is None else event.metrics.get(goal.metric, nan)
                if goal is not None and isfinite(value):
                    seen.best = _better(goal, seen.best, value)
                    deadline_s = seen.job.deadline_s
                    if deadline_s is None or event.at_s - seen.submitted_s <= deadline_s:
                        seen.by_deadline = seen.best
    return found


def _better(goal: Goal, best: float, value: float) -> float:
    if not isfinite(best):
        return value
    return max(best, value) if goal.relation == ">=" else min(best, value)


def _yes(met: bool | None) -> int:
    return UNKNOWN if met is None else int(met)
