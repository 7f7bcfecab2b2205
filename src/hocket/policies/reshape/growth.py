"""Algorithm 2: idle GPUs go to the running job with which the last one ends soonest."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from hocket.model.capacity import Capacity
from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.remaining_time import Key, PredictedEnds, only_on, speed, speed_here

_SLACK_S = 1e-6  # a gain below it is a rounding


Landing = tuple[str, frozenset[str]]


class Growth(NamedTuple):
    """A larger size for a running job."""

    view: JobView
    size: int
    kind: str | None  # of the GPUs to which it goes, if its nodes have no room
    then_s: float  # when it ends then


def grow(draft: Draft, ends: PredictedEnds, hysteresis: float) -> None:
    """Grow one job after another, as long as that is better than to do nothing."""
    idle = _Idle(draft, ends, hysteresis)
    while draft.free_gpus and (found := idle.best()) is not None:
        view = found.view
        gpus = (found.size - view.size) * view.job.demand.gpus
        as_if = replace(view, job=only_on(view.job, found.kind))
        if draft.resize(as_if, found.size, f"grows: {gpus} GPUs are idle, and it ends sooner"):
            ends.change(view, found.then_s)
        else:
            idle.failed.add((view.number, found.size))


class _Idle:
    """What idle GPUs could be used for."""

    def __init__(self, draft: Draft, ends: PredictedEnds, hysteresis: float) -> None:
        self.draft, self.ends, self.hysteresis = draft, ends, hysteresis
        self.now_s = draft.snapshot.now_s
        self.failed: set[tuple[int, int]] = set()  # (job, size) that could not be carried out
        self._landed: dict[object, Landing | None] = {}  # a place for so many replicas of such a job

    def best(self) -> Growth | None:
        """The best growth of all, if it is better than none.

        Jobs come by their ends, the last first. None gains more than what it has left, so the search ends early.
        """
        last, last_s, other_s = self.ends.last_two()
        now_s, key_of = self.now_s, self.ends.key
        free = {node.id: left.gpus.bit_count() for node, left in self.draft.capacity}
        roomy = max(free.values())
        self._landed.clear()
        best_key: Key = key_of(last_s, 0.0, 0)
        best: Growth | None = None
        for view, partition, ends_s in self.ends.settled(last_first=True):
            job_id = view.job.id
            if ends_s <= now_s:
                break
            others_s = other_s if job_id == last else last_s
            if key_of(others_s, now_s - ends_s, 0) >= best_key:
                break
            sizes, size_now = view.job.sizes, view.size
            if size_now == sizes[-1]:
                continue
            each = view.job.demand.gpus
            home = sum(free[part.node] for part in partition.slices)
            more = sizes[sizes.index(size_now) + 1]
            if (more - size_now) * each > home and view.job.max_nodes == 1 and more * each > roomy:
                continue  # There is no room for any larger size of it.
            for size in sizes:
                if size <= size_now or (view.number, size) in self.failed:
                    continue
                if (place := self._place(view, partition, size, ends_s)) is None:
                    continue
                kind, then_s = place
                if then_s - now_s >= (ends_s - now_s) * (1 - self.hysteresis) - _SLACK_S:
                    continue
                key = key_of(max(others_s, then_s), then_s - ends_s, (size - size_now) * each)
                if key < best_key:
                    best_key, best = key, Growth(view, size, kind, then_s)
        return best

    def _place(self, view: JobView, partition: Partition, size: int, ends_s: float) -> tuple[str | None, float] | None:
        """Of which kind it gets that size, and when it ends then: where it is if that has room, else the fastest."""
        capacity, job = self.draft.capacity, view.job
        work_s = (ends_s - self.now_s) * speed_here(view, view.size)
        home = [part.node for part in partition.slices]
        may_stay = not job.excluded_nodes or not set(home) & set(job.excluded_nodes)
        if may_stay and sum(capacity[node].room(job.demand) for node in home) >= size - view.size:
            return None, self.now_s + view.costs.restart_s(job.warm) + work_s / speed_here(view, size)
        if (size - view.size) * job.demand.gpus > capacity.gpus:
            return None
        best: tuple[str | None, float] | None = None
        for kind in self.ends.kinds(job):
            if (landed := self._landing(job, kind, partition, size)) is None:
                continue
            first, nodes = landed
            at_home = nodes <= {part.node for part in partition.slices}
            stop_s = view.costs.restart_s(job.warm and at_home)
            then_s = self.now_s + stop_s + work_s / speed(view, size, first, len(nodes))
            if best is None or then_s < best[1]:
                best = kind, then_s
        return best

    def _landing(self, job: Job, kind: str | None, partition: Partition, size: int) -> Landing | None:
        """The kind of its first GPUs, and its nodes, if it goes where the size fits."""
        if job.max_nodes != 1:
            return self._landing_in(self.draft.capacity.give(partition.slices), only_on(job, kind), size)
        # Its own node has no room, so it does not matter what it gives back there: others like it land alike.
        like = (kind, size, job.demand, job.gpu_kinds, job.gpu_mem_mib, job.excluded_nodes)
        if like not in self._landed:
            self._landed[like] = self._landing_in(self.draft.capacity, only_on(job, kind), size)
        return self._landed[like]

    def _landing_in(self, capacity: Capacity, job: Job, size: int) -> Landing | None:
        places = capacity.place(job, size)
        if places is None:
            return None
        nodes = [capacity.layout.nodes[i] for i, _replicas in places]
        return nodes[0].gpu_kind, frozenset(n.id for n in nodes)
