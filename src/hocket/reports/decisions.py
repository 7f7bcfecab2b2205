"""Every decision of a run, with what it rested on and what came of it, as columns to learn from.

Three files of NumPy arrays, and `about.json`, which says what they are of:

    decisions.npz   a row a decision: when, how many jobs, how much of every server was used, and where its rows begin
    rows.npz        a row for every tenant whose place a decision changed, and for the first jobs that still wait
    jobs.npz        a row a job, and its tasks and edges, which no decision changes

GPUs are numbered through, node after node; -1 is the queue. It knows no policy: all is read off snapshots and plans.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import msgspec

from hocket.control.ports import Header
from hocket.model.partition import Partition
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, demand_of
from hocket.model.view import JobView

MOST_WAITING = 64  # jobs of a decision's queue that get a row, though nothing changes for them
ROW = (
    "decision", "job", "task", "from_gpu", "to_gpu", "urgency", "epoch", "loss", "loss_fell", "loss_fell_in_all",
    "to_deadline_s", "left_s", "waited_s", "ran_s", "gpu_load", "cores", "mem_mib", "net_mbps",
)  # fmt: skip
JOB = ("number", "submitted_s", "urgency", "deadline_s", "run_s", "tasks")
TASK = ("job", "share", "gpu_load", "cores", "mem_mib", "net_mbps", "is_parameter_server")
EDGE = ("job", "source", "target", "mib")
LOSS = "loss"


class DecisionRecord:
    """Grows with each decision; `write` leaves it in a folder."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._first: dict[str, int] = {}  # node → its first GPU
        gpus = 0
        for node in header.nodes:
            self._first[node.id] = gpus
            gpus += node.gpus
        self._decisions = array("d")  # at_s, live, waiting, placed, first row
        self._use = array("f")
        self._rows = array("d")
        self._jobs, self._tasks, self._edges = array("d"), array("d"), array("d")
        self._names: dict[str, tuple[int, str, str]] = {}  # job → number, id, model
        self._made = 0

    def __len__(self) -> int:
        return self._made

    def watching(self, decide: Callable[[Snapshot], Plan]) -> Callable[[Snapshot], Plan]:
        """The same policy, with every decision taken down."""

        def watched(snapshot: Snapshot) -> Plan:
            plan = decide(snapshot)
            self.add(snapshot, plan)
            return plan

        return watched

    def add(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take one decision down."""
        waiting = snapshot.waiting.count
        self._decisions.extend(
            (snapshot.now_s, len(snapshot.jobs), waiting, snapshot.placed.count, len(self._rows) // len(ROW))
        )
        self._use.extend(self._servers(snapshot))
        before, after = self._places(plan, snapshot)
        for tenant in sorted(before.keys() | after.keys(), key=lambda t: (snapshot.jobs[t[0]].number, t[1])):
            if (was := before.get(tenant, -1)) != (now := after.get(tenant, -1)):
                self._add_row(snapshot, *tenant, was, now)
        moved = {job for job, _task in after}
        for entry, _n in zip(snapshot.waiting, range(MOST_WAITING), strict=False):
            if entry[-1] not in moved:
                self._add_row(snapshot, entry[-1], "", -1, -1)
        self._made += 1

    def _servers(self, snapshot: Snapshot) -> list[float]:
        """Of each node: the shares of GPUs, cores, memory and network that tenants ask for, by plan."""
        asked = {node.id: [0.0] * 4 for node in self.header.nodes}
        jobs = snapshot.jobs.data()
        for partition in snapshot.partitions.data().values():
            for tenant in partition.tenants:
                demand = demand_of(jobs[tenant.job].job, tenant.task)
                for part, replicas in zip(partition.slices, tenant.replicas, strict=True):
                    sums = asked.get(part.node)
                    if sums is not None:
                        sums[0] += replicas * demand.gpus * demand.gpu_share
                        sums[1] += replicas * demand.cores
                        sums[2] += replicas * demand.mem_mib
                        sums[3] += replicas * demand.net_mbps
        return [
            amount / has if has else 0.0
            for node in self.header.nodes
            for amount, has in zip(asked[node.id], (node.gpus, node.cores, node.mem_mib, node.net_mbps), strict=True)
        ]

    def _places(self, plan: Plan, snapshot: Snapshot) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """Tenants of the partitions that the plan changes: their first GPU before, and as planned."""
        old = [p for pid in (*plan.drop, *(p.id for p in plan.put)) if (p := snapshot.partitions.get(pid)) is not None]
        before = {(t.job, t.task): self._gpu(p) for p in old for t in p.tenants}
        after = {(t.job, t.task): self._gpu(p) for p in plan.put for t in p.tenants}
        return before, after

    def _gpu(self, partition: Partition) -> int:
        part = partition.slices[0]
        return self._first.get(part.node, 0) + (part.gpus[0] if part.gpus else 0)

    def _add_row(self, snapshot: Snapshot, job_id: str, task: str, was: int, now: int) -> None:
        view = snapshot.jobs[job_id]
        job, now_s = view.job, snapshot.now_s
        if job_id not in self._names or self._names[job_id][0] != view.number:
            self._add_job(view)
        at = -1
        if task and job.tasks is not None:
            plain = task.partition("#")[0]
            at = next(k for k, t in enumerate(job.tasks.tasks) if t.id == plain)
        demand = demand_of(job, task)
        left_s = view.remaining_s(now_s)
        self._rows.extend(
            (
                self._made, view.number, at, was, now, job.urgency, view.epoch, *_losses(view),
                nan if job.deadline_s is None else view.submitted_s + job.deadline_s - now_s,
                nan if left_s is None else left_s, view.waited_at(now_s), view.ran_at(now_s),
                demand.gpus * demand.gpu_share, demand.cores, demand.mem_mib, demand.net_mbps,
            )
        )  # fmt: skip

    def _add_job(self, view: JobView) -> None:
        job, run_s = view.job, view.beliefs.run_s
        self._names[job.id] = (view.number, job.id, job.model)
        tasks = job.tasks.tasks if job.tasks is not None else ()
        deadline_s = nan if job.deadline_s is None else job.deadline_s
        run_mean_s = nan if run_s is None else run_s.mean
        self._jobs.extend((view.number, view.submitted_s, job.urgency, deadline_s, run_mean_s, len(tasks)))
        index = {t.id: k for k, t in enumerate(tasks)}
        for t in tasks:
            d = t.demand
            load = d.gpus * d.gpu_share
            self._tasks.extend((view.number, t.share, load, d.cores, d.mem_mib, d.net_mbps, t.is_parameter_server))
        for edge in job.tasks.edges if job.tasks is not None else ():
            self._edges.extend((view.number, index[edge.source], index[edge.target], edge.mib))

    def write(self, folder: Path) -> list[Path]:
        """Leave it in a folder; each file is there whole or not at all."""
        import numpy as np

        def table(values: array[float], names: tuple[str, ...]) -> dict[str, Any]:
            rows = np.frombuffer(values, dtype=float).reshape(-1, len(names)) if values else np.empty((0, len(names)))
            return {name: _compact(rows[:, i]) for i, name in enumerate(names)}

        decisions = table(self._decisions, ("at_s", "live", "waiting", "placed", "first_row"))
        shape = (self._made, len(self.header.nodes), 4)
        decisions["use"] = np.array(self._use, dtype=np.float16).reshape(shape)
        names = list(self._names.values())
        jobs = table(self._jobs, JOB)
        jobs["id"], jobs["model"] = np.array([n[1] for n in names]), np.array([n[2] for n in names])
        jobs |= {f"task_{k}": v for k, v in table(self._tasks, TASK).items()}
        jobs |= {f"edge_{k}": v for k, v in table(self._edges, EDGE).items()}
        about = {
            "policy": self.header.policy,
            "params": self.header.params,
            "workload": self.header.workload,
            "seed": self.header.seed,
            "decisions": self._made,
            "nodes": self.header.nodes,
            "use": ("gpus", "cores", "mem_mib", "net_mbps"),
        }
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, columns in (("decisions", decisions), ("rows", table(self._rows, ROW)), ("jobs", jobs)):
            part, path = folder / f".{name}.part.npz", folder / f"{name}.npz"
            np.savez_compressed(part, **columns)
            os.replace(part, path)
            written.append(path)
        part, path = folder / ".about.json.part", folder / "about.json"
        part.write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=2))
        os.replace(part, path)
        return [*written, path]


def _losses(view: JobView) -> tuple[float, float, float]:
    """The latest loss, and by how much it fell in the last iteration and in all that are known."""
    losses = {o.epoch: x for o in view.observations if isfinite(x := o.metrics.get(LOSS, inf))}
    values = list(losses.values())
    if not values:
        return nan, nan, nan
    return values[-1], (values[-2] - values[-1]) if len(values) > 1 else nan, values[0] - values[-1]


def _compact(column: Any) -> Any:
    """Whole numbers as such, others at half the length, but for times late in a run."""
    import numpy as np

    if len(column) and np.isfinite(column).all() and (column == np.round(column)).all() and abs(column).max() < 2**31:
        return column.astype(np.int32)
    return column if np.nanmax(abs(column), initial=0.0) > 1e5 else column.astype(np.float32)
