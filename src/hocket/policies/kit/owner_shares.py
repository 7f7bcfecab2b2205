"""How much owners have: their shares, their waiting jobs in lanes, and the jobs of owners that have more.

For policies whose ranks begin with the owner, so that an owner's jobs are together in every queue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from hocket.model.capacity import Shape
from hocket.model.job import Job
from hocket.model.resources import Vector
from hocket.model.snapshot import NO_USE, Snapshot, Usage
from hocket.model.versioned import Entry
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.placed_by_owner import held_by


def _owner(entry: Entry) -> str:
    owner: str = entry[0][0]
    return owner


class Shares:
    """Owners' levels: the share of the resource of which an owner has most, over the owner's weight."""

    def __init__(self, snapshot: Snapshot, totals: Vector) -> None:
        """A resource whose total is 0 does not count."""
        self._snapshot = snapshot
        self._rates = tuple(1.0 / total if total else 0.0 for total in totals)
        self._used: dict[str, Usage] = {}  # where it differs from the snapshot's
        self._levels: dict[str, float] = {}  # those that were asked for

    def _usage(self, owner: str) -> Usage:
        return self._used.get(owner) or self._snapshot.usage.get(owner) or NO_USE

    def _level(self, owner: str, used: Usage) -> float:
        return max(u * r for u, r in zip(used.vector, self._rates, strict=True)) / self.weight(owner)

    def weight(self, owner: str) -> float:
        """The owner's weight, 1 unless it was set."""
        known = self._snapshot.owners.get(owner)
        return known.weight if known is not None else 1.0

    def level(self, owner: str) -> float:
        """The owner's level as it stands."""
        level = self._levels.get(owner)
        if level is None:
            level = self._levels[owner] = self._level(owner, self._usage(owner))
        return level

    def level_with(self, job: Job, replicas: int) -> float:
        """The level of the job's owner with so many replicas more; with fewer if negative."""
        return self._level(job.owner, self._usage(job.owner).plus(job.demand, replicas))

    def add(self, job: Job, replicas: int) -> None:
        """Count so many replicas more; fewer if negative."""
        self._used[job.owner] = self._usage(job.owner).plus(job.demand, replicas)
        self._levels.pop(job.owner, None)

    def gpus_above(self, level: float) -> float:
        """How many GPUs, at most, owners above a level can lose and still be above it."""
        gpus = 0.0
        for owner in self._snapshot.usage:
            if self.level(owner) > level:
                gpus += self._usage(owner).gpus
                if not any(self._rates[1:]):  # Nothing but GPUs keeps it there.
                    gpus -= level * self.weight(owner) / self._rates[0]
        return gpus


class Lanes:
    """Waiting jobs by owner and shape, without a look at more than the first of each.

    With `over_quota`, jobs whose owner's quota is used up come too: they may displace jobs of the same owner.
    """

    def __init__(self, draft: Draft, *, over_quota: bool = False) -> None:
        self._draft, self._over_quota = draft, over_quota
        self._lanes: dict[str, list[list[Any]]] = {}  # owner → [shape, entries, at, end]
        for shape, entries in draft.snapshot.waiting.buckets().items():
            at, last = 0, len(entries)
            while at < last:
                owner = _owner(entries[at])
                end = bisect_right(entries, owner, at, last, key=_owner)
                self._lanes.setdefault(owner, []).append([shape, entries, at, end])
                at = end

    def owners(self) -> list[str]:
        """Owners of waiting jobs."""
        return list(self._lanes)

    def head(self, owner: str) -> JobView | None:
        """The owner's next job that may be placed."""
        lanes = self._lanes[owner]
        while lanes:
            lane = min(lanes, key=lambda lane: lane[1][lane[2]])
            if lane is not lanes[0]:
                lanes.remove(lane)
                lanes.insert(0, lane)
            view = self._draft.snapshot.jobs[lane[1][lane[2]][-1]]
            if view.verdict:
                self.advance(owner)
            elif self._draft.admits(view) or (self._over_quota and self._draft.is_over_quota(view)):
                return view
            else:
                del lanes[0]  # Others of its shape are turned down alike.
        return None

    def advance(self, owner: str) -> None:
        """The job that was `head` has been served."""
        lane = self._lanes[owner][0]
        lane[2] += 1
        if lane[2] == lane[3]:
            del self._lanes[owner][0]

    def close(self, owner: str) -> None:
        """Nothing of the shape of the job that was `head` can be served for this owner."""
        del self._lanes[owner][0]

    def close_shape(self, shape: Shape) -> None:
        """Nothing of this shape can be served for any owner."""
        for lanes in self._lanes.values():
            lanes[:] = [lane for lane in lanes if lane[0] != shape]


def serve(lanes: Lanes, turn: Callable[[str], Any], give: Callable[[JobView], bool]) -> bool:
    """Progressive filling: again and again the owner with the least `turn` gets its next job. True when some wait on.

    `give` places a job, or closes a lane of its owner and returns False.
    """
    left = False
    line = [(turn(owner), owner) for owner in lanes.owners()]
    heapify(line)
    while line:
        _turn, owner = heappop(line)
        view = lanes.head(owner)
        if view is None:
            continue
        if give(view):
            lanes.advance(owner)
        else:
            left = True
        heappush(line, (turn(owner), owner))
    return left


def grow(
    draft: Draft,
    shares: Shares,
    jobs: Iterable[JobView],
    turn: Callable[[JobView, int], tuple[float, ...]],
    why: Callable[[JobView], str],
) -> bool:
    """Give what is left to these jobs, a size at a time, each time to the one whose `turn` at its size is least.

    `why` gives the reason, or nothing for a job that must not grow now. True if one of them could use more.
    """
    line = []
    for view in jobs:
        size = draft.size_of(view)
        if size and size < view.job.sizes[-1]:
            line.append((turn(view, size), view.number, view, size))
    heapify(line)
    wanted = bool(line)
    while line:
        last, number, view, size = heappop(line)
        job = view.job
        if (now := turn(view, size)) != last:
            heappush(line, (now, number, view, size))  # Its owner has more than when it was put there.
            continue
        more = job.sizes[job.sizes.index(size) + 1]
        if (more - size) * job.demand.gpus > draft.free_gpus or not (reason := why(view)):
            continue
        if draft.resize(view, more, reason):
            shares.add(job, more - size)
            if more < job.sizes[-1]:
                heappush(line, (turn(view, more), number, view, more))
    return wanted


def placed_of(snapshot: Snapshot, owner: str) -> list[Entry]:
    """The owner's placed jobs, those of fixed size and elastic ones each by rank."""
    found: list[Entry] = []
    for entries in snapshot.placed.buckets().values():
        at = bisect_left(entries, owner, key=_owner)
        found += entries[at : bisect_right(entries, owner, at, key=_owner)]
    return found


def placed_s(view: JobView) -> float:
    """When the plan last placed or resized the job: its memo, for policies that keep that there."""
    return view.since_s if view.memo is None else float(view.memo)


def richer(draft: Draft, shares: Shares, view: JobView) -> Iterator[JobView]:
    """Placed jobs whose owners, even without them, have more than this job's owner has now; they count as gone.

    From the owner with most first: of its jobs the smallest that alone makes enough room, else the largest.
    """
    mine, snapshot = shares.level(view.job.owner), draft.snapshot
    missing = view.job.sizes[0] * view.job.demand.gpus - draft.free_gpus

    line = [(-level, owner) for owner in snapshot.usage if (level := shares.level(owner)) > mine]
    heapify(line)
    jobs: dict[str, Iterator[JobView]] = {}
    changed = _owners_of_changed(draft)
    while line:
        _level, owner = heappop(line)
        if owner not in jobs:
            jobs[owner] = _first_to_go(draft, owner, missing, owner in changed)
        for victim in jobs[owner]:
            size = draft.size_of(victim)
            if size and shares.level_with(victim.job, -size) > mine:
                shares.add(victim.job, -size)
                yield victim
                heappush(line, (-shares.level(owner), owner))
                break


def _owners_of_changed(draft: Draft) -> set[str]:
    """Whose placed jobs the draft gives something else, or nothing."""
    present, jobs = draft.snapshot.partitions.data(), draft.snapshot.jobs.data()
    return {jobs[t.job].job.owner for pid in draft.changed_partitions if pid in present for t in present[pid].tenants}


def _first_to_go(draft: Draft, owner: str, missing: int, is_changed: bool) -> Iterator[JobView]:
    """An owner's placed jobs: the smallest that alone has what is missing, …, the largest that has not, …."""
    snapshot = draft.snapshot
    known = None if is_changed else held_by(snapshot, owner)
    if known is None:
        views = [snapshot.jobs[entry[-1]] for entry in placed_of(snapshot, owner)]
        known = sorted((draft.gpus_of(view), view.number, view.job.id) for view in views)
    enough = bisect_left(known, (missing,))
    at = enough
    while at < len(known):  # Of those that have as many, the last submitted goes first.
        end = bisect_left(known, (known[at][0] + 1,), at)
        for i in range(end - 1, at - 1, -1):
            yield snapshot.jobs[known[i][-1]]
        at = end
    for i in range(enough - 1, -1, -1):
        yield snapshot.jobs[known[i][-1]]


def displace_richer(
    draft: Draft, shares: Shares, view: JobView, quantum_s: float, why: str, retry_s: list[float]
) -> list[JobView]:
    """Start the job in the place of richer owners' jobs, and count both; the jobs that make way.

    They are chosen whether or not they have had their quantum. If one has not, nothing happens, and the time when all
    have is written to `retry_s`: so what happens does not depend on when the policy is asked.
    """
    missing = view.job.sizes[0] * view.job.demand.gpus - draft.free_gpus
    if missing > shares.gpus_above(shares.level(view.job.owner)):
        return []
    saved, taken = draft.saved(), list[JobView]()

    def chosen() -> Iterator[JobView]:
        for victim in richer(draft, shares, view):
            taken.append(victim)
            yield victim

    paused = draft.displace(view, chosen(), f"paused: '{view.job.owner}' has less for its weight", why)
    ready_s = max((placed_s(victim) + quantum_s for victim in paused), default=0.0)
    if ready_s > draft.snapshot.now_s:
        retry_s.append(ready_s)
        draft.restore(saved)
        paused = []
    going = {victim.job.id for victim in paused}
    for victim in taken:
        if victim.job.id not in going:
            shares.add(victim.job, draft.size_of(victim))
    return paused
