"""What load control watches: jobs that may be ended and have reported, jobs that lack a task, loads of nodes.

From one decision to the next only jobs and nodes that changed are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from math import inf, sqrt

from hocket.model.capacity import Capacity, Free
from hocket.model.job import Stop
from hocket.model.partition import Partition
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import VersionedMap
from hocket.model.view import JobView
from hocket.policies.kit.decision_cache import borrow


class LoadWatch:
    """Of the snapshot that was followed last."""

    __slots__ = ("_capacity", "_jobs", "_loads", "_recent", "_recent_s", "lacking", "lowerable", "reported")

    def __init__(self) -> None:
        self.reported: dict[str, float] = {}  # placed jobs that may end before their time → their last report
        self.lowerable: set[str] = set()  # of these, whose users allow more in times of overload
        self.lacking: set[str] = set()  # placed jobs of which a task has no place
        self._recent: dict[str, None] = {}  # of those that reported, the ones that did so since …
        self._recent_s = -inf  # … then
        self._jobs: VersionedMap[str, JobView] | None = None  # that were followed last
        self._capacity: Capacity | None = None
        self._loads: list[float] = []  # by node

    def follow(self, snapshot: Snapshot) -> None:
        """Be what there is to watch in this snapshot."""
        jobs, partitions = snapshot.jobs.data(), snapshot.partitions.data()
        changed: Iterable[str] | None = None
        if self._jobs is not None:
            changed = snapshot.jobs.changed_since(self._jobs)
        self._jobs = snapshot.jobs
        if changed is None:
            self.reported, self.lowerable, self.lacking = {}, set(), set()
            self._recent, self._recent_s = {}, -inf
            changed = jobs
        for job_id in changed:
            self._look_at(job_id, jobs.get(job_id), partitions)

    def _look_at(self, job_id: str, view: JobView | None, partitions: dict[str, Partition]) -> None:
        if view is None or not view.partitions:
            self.lacking.discard(job_id)
            self._pass_over(job_id)
            return
        job = view.job
        if job.tasks is not None and lacks(view, tasks_in(job_id, (partitions[p] for p in view.partitions))):
            self.lacking.add(job_id)
        else:
            self.lacking.discard(job_id)
        if not job.may_stop or view.verdict:
            self._pass_over(job_id)
            return
        self.reported[job_id] = at_s = view.observations[-1].at_s if view.observations else -inf
        if at_s >= self._recent_s:
            self._recent[job_id] = None
        if job.may_lower is Stop.FIXED:
            self.lowerable.discard(job_id)  # Another may have had its name.
        else:
            self.lowerable.add(job_id)

    def _pass_over(self, job_id: str) -> None:
        if self.reported.pop(job_id, None) is not None:
            self._recent.pop(job_id, None)
            self.lowerable.discard(job_id)

    def reported_since(self, at_s: float) -> Iterable[str]:
        """Placed jobs that may end before their time and have reported since then."""
        if at_s < self._recent_s:
            self._recent = dict.fromkeys(self.reported)
        self._recent = {job_id: None for job_id in self._recent if self.reported[job_id] >= at_s}
        self._recent_s = at_s
        return self._recent

    def mean_load(self, capacity: Capacity) -> float:
        """How loaded the nodes are that are up, on average."""
        nodes, loads = capacity.layout.nodes, self._loads
        if self._capacity is None or self._capacity.layout is not capacity.layout:
            loads[:] = [0.0] * len(nodes)
        for i in capacity.changed_since(self._capacity):
            loads[i] = load(nodes[i], capacity[nodes[i].id])
        self._capacity = capacity
        if capacity.up != capacity.layout.all:
            loads = [load for i, load in enumerate(loads) if capacity.up >> i & 1]
        return sum(loads) / len(loads) if loads else 0.0


@contextmanager
def watching(snapshot: Snapshot) -> Iterator[LoadWatch]:
    """What there is to watch in a snapshot."""
    with borrow((LoadWatch, snapshot.capacity.layout), LoadWatch) as watch:
        watch.follow(snapshot)
        yield watch


def load(node: Node, free: Free) -> float:
    """How loaded a node is by plan: the root mean square over the resources it has, so that 1 is all of all."""
    left = free.vector
    used = [1.0 - amount / total for amount, total in zip(left, node.vector, strict=True) if total > 0]
    return sqrt(sum(u * u for u in used) / len(used)) if used else 0.0


def tasks_in(job_id: str, partitions: Iterable[Partition]) -> set[str]:
    """The tasks of a job that have a place there; a copy stands for its task, a job in one piece has a nameless one."""
    return {t.task.partition("#")[0] for p in partitions for t in p.tenants if t.job == job_id}


def lacks(view: JobView, has: AbstractSet[str]) -> bool:
    """Is a job that has places for these tasks short of one?"""
    return len(has) < (1 if view.job.tasks is None else len(view.job.tasks.tasks))
