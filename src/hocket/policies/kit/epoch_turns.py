"""Resources for an epoch at a time: at its end a job is compared with those that wait, and the better one goes on.

What Rotary's policies and those it is compared with share. A job that is granted resources keeps them until it has
ended an epoch; then it is *due*, and a job that waits may take its place. In between, jobs that wait get what is free.
So all is decided at arrivals, ends and ends of epochs, and asking more often changes nothing. A job that reports no
epochs is due after a time (`longest_epoch_s`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf
from operator import itemgetter
from typing import Annotated, Any, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.job import Job
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Demand
from hocket.model.snapshot import Snapshot
from hocket.model.view import Doing, JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params

Key = Callable[[JobView], tuple[Any, ...]]  # what to sort by: the smallest goes first
_ROUNDING_S = 1e-6


class EpochParams(Params, frozen=True):
    """For policies that decide at the ends of epochs."""

    longest_epoch_s: Annotated[
        float, Meta(gt=0, description="a job that reports no epoch for so long is compared with those that wait")
    ] = 3600.0
    tell_kept: Annotated[
        bool, Meta(description="whether a job that goes on after an epoch is told why, as one that starts is")
    ] = True

    before: ClassVar[dict[str, Any]] = {"tell_kept": False}


class EpochTurns:
    """One decision. `key` ranks jobs, waiting ones and those that are due alike; `why` says it in words.

    `boundary` is how long a job keeps what it is granted, an epoch of its own by default. `outlook` is what is said of
    a job to another that is compared with it: `needs 11 epochs, 40% sure`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        params: EpochParams,
        key: Key,
        why: Callable[[JobView], str],
        boundary: Callable[[JobView], Boundary] = lambda _view: EPOCH,
        needs: Callable[[JobView], JobView] = lambda view: view,
        outlook: Callable[[JobView], str] | None = None,
    ) -> None:
        self.snapshot, self.params, self.key, self.why, self.boundary = snapshot, params, key, why, boundary
        self._outlook = outlook
        self._needs = needs  # the job with what it is estimated to need, if that is more than it asks for
        self.draft = Draft(snapshot)
        self._orders: dict[int, tuple[Any, ...]] = {}  # of jobs that have a place
        jobs = snapshot.jobs.data()
        placed = [jobs[entry[-1]] for entry in snapshot.placed]
        self.due = sorted((v for v in placed if self._has_ended_epoch(v) and self._may_change(v)), key=self._order)
        self._compared = self.due  # as they were before they were compared
        # They change already, or may not be paused: they are compared after the next epoch.
        self._postponed = [v for v in placed if self._has_ended_epoch(v) and not self._may_change(v)]
        waiting = [jobs[entry[-1]] for entry in snapshot.waiting]
        self._waiting = sorted([((*key(view), view.number), view) for view in waiting])  # by their order
        self.granted: list[JobView] = []  # jobs that begin an epoch now, the first in order first
        self._room = _Room(self.draft)

    def _order(self, view: JobView) -> tuple[Any, ...]:
        found = self._orders.get(view.number)
        if found is None:
            found = self._orders[view.number] = (*self.key(view), view.number)
        return found

    def _has_ended_epoch(self, view: JobView) -> bool:
        """Has it ended an epoch since it was granted its resources, or had the time for one?"""
        epoch, at_s = granted_at(view)
        return view.epoch > epoch or self.snapshot.now_s >= at_s + self.params.longest_epoch_s - _ROUNDING_S

    def _may_change(self, view: JobView) -> bool:
        """May it be paused or resized now? One that is about to change is not disturbed."""
        if not view.size or view.verdict or view.job.tasks is not None or len(view.partitions) != 1:
            return False
        if any(t.doing is not Doing.NOTHING for t in view.tenancies):
            return False
        partition = self.snapshot.partitions[view.partitions[0]]
        return len(partition.tenants) == 1 and not self.draft.is_protected(view)

    def compare(self, may_start: Callable[[JobView], bool] = lambda _view: True) -> None:
        """Waiting jobs in order: each starts in what is free, or in place of jobs that are due and come after it.

        Jobs that were paused for them are compared again, for what is left.
        `may_start` is called for each that may fit.
        """
        draft = self.draft
        line, at = self._waiting, 0
        again: list[tuple[tuple[Any, ...], JobView]] = []  # those that made way; a heap
        behind, over_quota = list(self.due), False
        last_of_all, last_with_gpus = self._last(behind), self._last([v for v in behind if v.gpus])
        while True:
            if again and (at == len(line) or again[0] < line[at]):
                order, view = heappop(again)
            elif at < len(line):
                order, view = line[at]
                at += 1
            elif not over_quota:  # At last, jobs that may take the place of jobs of their own owner.
                over_quota = True
                line, at = sorted((self._order(view), view) for view in draft.waiting_over_quota()), 0
                continue
            else:
                break
            # Most jobs that wait neither fit nor come before one that is due and has what they need.
            last = last_with_gpus if view.job.demand.gpus else last_of_all
            if not draft.has_quotas and not self._room.for_(view.job) and (last is None or last < order):
                continue
            if not may_start(view):
                continue
            needed = self._needs(view)
            if draft.is_passed_over(needed) or not (over_quota or draft.admits(view)):
                continue
            why = "goes on in what is left" if view.partitions else self.why(view)
            if self._room.for_(needed.job) and draft.start(needed, why, view.job.sizes[0], self.boundary(view)):
                self._room.changed()
                self.granted.append(view)
                continue
            going = self._displace(view, needed, behind)
            if going:
                self._room.changed()
                behind = [v for v in behind if v not in going]
                last_of_all, last_with_gpus = self._last(behind), self._last([v for v in behind if v.gpus])
                self.granted = [v for v in self.granted if v not in going]
                self.granted.append(view)
                for victim in going:
                    heappush(again, (self._order(victim), victim))
            elif needed is not view and self._would_fit(view):
                draft.reasons[view.id] = _too_large(needed.job)
        self.due = behind
        self.granted = sorted([*self.granted, *behind], key=self._order)

    def pause(self, view: JobView) -> None:
        """Pause a job that is due, so that the first in order of those that were granted an epoch can grow."""
        self.due = [v for v in self.due if v is not view]
        self.granted = [v for v in self.granted if v is not view]
        reason = "paused at the end of an epoch"
        if self.granted:
            reason += f": '{self.granted[0].id}' needs its place"
            if self._outlook is not None:
                reason += f": it {self._outlook(self.granted[0])}"
        self.draft.pause(view, reason)
        self._room.changed()

    def _last(self, views: list[JobView]) -> tuple[Any, ...] | None:
        """The order of the last of them; None if there are none."""
        return self._order(views[-1]) if views else None

    def _displace(self, view: JobView, needed: JobView, behind: list[JobView]) -> list[JobView]:
        order = self._order(view)
        victims = [v for v in reversed(behind) if self._order(v) > order]
        if not victims:
            return []
        paused = f"paused at the end of an epoch: '{view.id}' goes first"
        if self._outlook is not None:
            paused += f": it {self._outlook(view)}"
        return self.draft.displace(needed, victims, paused, self.why(view), self.boundary(view))

    def _would_fit(self, view: JobView) -> bool:
        return self.draft.capacity.place(view.job, view.job.sizes[0]) is not None

    def shrink_due(self) -> None:
        """Jobs that are due give back all but their smallest size: it is handed out anew."""
        for view in self.due:
            if self.draft.size_of(view) > view.job.sizes[0]:
                self._resize(view, view.job.sizes[0], "shrinks: its extra cores are handed out anew")
        self._room.changed()

    def grow(self, turns: Callable[[list[JobView]], Iterable[JobView]] | None = None) -> None:
        """Hand out what is left: a size more to each that was granted an epoch, in order, until nothing fits.

        `turns` says which of them grows next instead; one at a time.
        """
        growing = [v for v in self.granted if v.job.is_elastic]
        if self.snapshot.waiting.count > len(self.draft.started_jobs()) and not growing:
            return
        if turns is None:
            while growing:
                growing = [view for view in growing if self.grow_one(view)]
        else:
            for view in turns(growing):
                self.grow_one(view)

    def grow_one(self, view: JobView) -> bool:
        """Give the job its next size, if there is room."""
        size = self.draft.size_of(view)
        larger = next((s for s in view.job.sizes if s > size), 0)
        return bool(larger) and bool(size) and self._resize(view, larger, f"{self.why(view)}; grows into what is left")

    def _resize(self, view: JobView, size: int, reason: str) -> bool:
        needed, pid = self._needs(view), view.partitions[0] if view.partitions else view.id
        if needed is not view:  # What it is estimated to need does not grow with its size.
            needed = _of_size(view, needed, size)
        before = self.draft.reasons.get(view.id)
        boundary = self.draft.partition(pid).tenants[0].boundary  # type: ignore[union-attr]
        if not self.draft.resize(needed, size, reason, boundary):
            return False
        present = self.snapshot.partitions.get(pid)
        if present is not None and present == self.draft.partition(pid):
            self.draft.keep_partition(pid)  # It is as it was.
            self.draft.reasons.pop(view.id, None)
            if before is not None and not before.startswith("shrinks"):
                self.draft.reasons[view.id] = before
        return True

    def plan(self, waits: str, memo: Any = None) -> Plan:
        """The plan; `waits` is the reason of all jobs that have to wait."""
        draft, now_s = self.draft, self.snapshot.now_s
        for view in (*self.granted, *self._postponed):
            draft.memos[view.id] = {"epoch": view.epoch, "at_s": now_s}
            draft.reviews[view.id] = now_s + self.params.longest_epoch_s
        self._add_comparisons()
        if self.snapshot.waiting.count > draft.started or draft.paused or draft.over_quota:
            draft.reasons["*"] = waits
        return draft.plan(Wake(freed_gpus=1), memo=memo)

    def _add_comparisons(self) -> None:
        """Add to the reasons of jobs that begin an epoch what each was compared with: the next job that has to wait."""
        reasons = self.draft.reasons
        if self.params.tell_kept:
            for view in self.due:
                if view.id not in reasons:
                    reasons[view.id] = self.why(view)
        if self._outlook is None or not self.granted:
            return
        granted = {view.number for view in self.granted}
        for view in self.granted:
            if view.id in reasons and (rival := self._next_after(view, granted)) is not None:
                reasons[view.id] += f"; '{rival.id}' {self._outlook(rival)}"

    def _next_after(self, view: JobView, granted: set[int]) -> JobView | None:
        """The first job in order after this one that is not granted an epoch."""
        order, line = self._order(view), self._waiting
        at = bisect_right(line, order, key=itemgetter(0))
        while at < len(line) and line[at][1].number in granted:
            at += 1
        made_way = [(self._order(v), v) for v in self._compared if v.number not in granted]
        after = [each for each in (*line[at : at + 1], *made_way) if each[0] > order]
        return min(after)[1] if after else None


def granted_at(view: JobView) -> tuple[int, float]:
    """The epoch after which the job was last granted resources, and when; another policy's memo says nothing."""
    memo = view.memo
    if isinstance(memo, dict) and {*memo} == {"epoch", "at_s"}:
        return memo["epoch"], memo["at_s"]
    return -1, -inf


def turn_key(view: JobView, now_s: float) -> tuple[float]:
    """For round robin: the job that has waited longest since its last turn; one whose turn ends now comes last."""
    return (now_s if view.partitions else view.since_s,)


class _Room:
    """A quick check whether to search for a place at all: most jobs that wait do not fit."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.changed()

    def changed(self) -> None:
        """Something was placed or paused."""
        self._cores: float | None = None

    def for_(self, job: Job) -> bool:
        """False only if no node has the GPUs or cores for one replica."""
        demand = job.demand
        if demand.gpus:
            return demand.gpus * job.sizes[0] <= self._draft.free_gpus
        if not demand.cores:
            return True
        if self._cores is None:
            self._cores = max((free.cores for _node, free in self._draft.capacity), default=0.0)
        return demand.cores <= self._cores + 1e-9


class LargestMemory:
    """The most memory that nodes have, for jobs whose memory is estimated."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = [v.node for v in snapshot.nodes.values() if v.is_open]
        self._most: dict[tuple[Any, ...], float] = {}

    def with_memory(self, view: JobView, mem_mib: float) -> JobView:
        """The job as if it asked for so much memory at its smallest size, on its GPUs or, without GPUs, on the machine.

        Nothing is added where nodes do not say how much memory they have, and no more than the largest node has.
        """
        job = view.job
        if job.demand.gpus:
            needs = min(mem_mib, self._for(job))
            return replace(view, job=replace(job, gpu_mem_mib=needs)) if needs > job.gpu_mem_mib else view
        return _with_demand(view, min(mem_mib, self._for(job)) / job.sizes[0])

    def _for(self, job: Job) -> float:
        key = job.excluded_nodes, job.gpu_kinds, bool(job.demand.gpus)
        most = self._most.get(key)
        if most is None:
            nodes = [
                n
                for n in self._nodes
                if n.id not in job.excluded_nodes and (not job.gpu_kinds or n.gpu_kind in job.gpu_kinds)
            ]
            each = (n.gpu_mem_mib if job.demand.gpus else n.mem_mib for n in nodes)
            most = self._most[key] = max(each, default=0.0)
        return most


def _with_demand(view: JobView, mem_mib: float) -> JobView:
    demand = view.job.demand
    if mem_mib <= demand.mem_mib:
        return view
    more = Demand(demand.gpus, demand.cores, mem_mib, demand.net_mbps, demand.gpu_share)
    return replace(view, job=replace(view.job, demand=more))


def _of_size(view: JobView, needed: JobView, size: int) -> JobView:
    """What is needed at another size: the same memory in all, or what the job itself asks if that is more."""
    if needed.job.demand.gpus:
        return needed
    in_all = needed.job.demand.mem_mib * needed.job.sizes[0]
    return _with_demand(view, in_all / size)


def _too_large(job: Job) -> str:
    needs = job.gpu_mem_mib if job.demand.gpus else job.demand.mem_mib * job.sizes[0]
    where = "of a GPU's memory" if job.demand.gpus else "of memory"
    return f"waits: it is estimated to need {needs / 1024:.1f} GiB {where}, and less is free"
