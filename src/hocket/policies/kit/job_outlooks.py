"""What jobs are likely to attain for what they take: the chance that a criterion holds in time, over the time that the
job still needs and the share of the machine that it takes, at the best of its sizes.

An outlook follows from the job's view, and from the time if its deadline is one. What follows from the view alone is
kept from one decision to the next (`decision_cache.py`), as long as the view is the very same.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf

from msgspec import Struct

from hocket.model.criterion import Duration, RunTime
from hocket.model.curve import NEVER, Point
from hocket.model.resources import Demand
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import likely_units, progress, units_allowed, units_done
from hocket.policies.kit.decision_cache import borrow

_SIZES = 4  # of a job that are looked at, of many some
_SURE_ENOUGH = 0.95  # a chance that more cores hardly raise
_Totals = tuple[float, float, float]  # GPUs, cores and memory of all nodes that are up


class JobOutlook(Struct, frozen=True, gc=False):
    """What is to be expected of a job at the size at which it attains most for what it takes."""

    worth: float  # what is attained for a second of the whole machine; below 0 for jobs that can hardly attain any more
    size: int


class _Timed(Struct, frozen=True, gc=False):
    """What the outlook of a job with a deadline in time is computed from, at any time."""

    until_s: float  # its deadline
    done: float  # units
    at: float  # units by which it is likely to attain
    unit_s: float
    points: tuple[Point, ...]  # units → chance
    speeds: tuple[tuple[int, float], ...]  # of its sizes
    start_s: float
    share: float

    def at_time(self, now_s: float, hopeless: float) -> JobOutlook:
        """Over its sizes, the best."""
        time_s = max(0.0, self.until_s - now_s)
        done, at, unit_s, points, start_s, share = (
            self.done, self.at, self.unit_s, self.points, self.start_s, self.share,
        )  # fmt: skip
        least = self.speeds[0][0]
        best_worth, best_size, most = -inf, least, 0.0
        for size, speed in self.speeds:
            allowed = done + time_s * speed / unit_s
            sure = _interpolated(points, allowed)
            left_s = ((at if at < allowed else allowed) - done) * unit_s / speed
            worth = sure * least / (((left_s if left_s > 1.0 else 1.0) + start_s) * share * size)
            if sure > most:
                most = sure
            if worth > best_worth:
                best_worth, best_size = worth, size
            elif sure >= _SURE_ENOUGH:
                break  # More can only take more.
        return JobOutlook(best_worth, best_size) if most >= hopeless else JobOutlook(most - 1.0, least)


def job_outlooks(snapshot: Snapshot, hopeless: float, switching: bool) -> dict[int, JobOutlook]:
    """The outlook of each job, by its number.

    Jobs less likely than `hopeless` to attain have a worth below 0. With `switching`, a job that waits has its start,
    and the pause of another, counted as time that it needs.
    """
    key = (_Outlooks, snapshot.capacity.layout, hopeless, switching)
    with borrow(key, lambda: _Outlooks(hopeless, switching)) as kept:
        return kept.of(snapshot)


class _Outlooks:
    """Those of one machine or cluster; whatever was asked before, the answer is that of the snapshot."""

    __slots__ = ("_hopeless", "_known", "_switching", "_totals")

    def __init__(self, hopeless: float, switching: bool) -> None:
        self._hopeless, self._switching = hopeless, switching
        self._totals: _Totals = (0.0, 0.0, 0.0)
        self._known: dict[int, tuple[JobView, JobOutlook | _Timed]] = {}  # job's number → its view, and what follows

    def of(self, snapshot: Snapshot) -> dict[int, JobOutlook]:
        """The outlooks of all jobs in it."""
        now_s, views, hopeless = snapshot.now_s, snapshot.jobs.data().values(), self._hopeless
        totals = _totals(snapshot)
        if totals != self._totals or len(self._known) > 2 * len(views) + 1000:
            self._totals, self._known = totals, {}
        known, shares = self._known, dict[tuple[Demand, int], float]()
        found = {}
        for view in views:
            number = view.number
            had = known.get(number)
            if had is not None and had[0] is view:
                outlook = had[1]
            elif (foreseen := self._foreseen(view, shares)) is not None:
                known[number] = view, foreseen
                outlook = foreseen
            else:
                outlook = self._unknown(view, now_s, shares)
            found[number] = outlook.at_time(now_s, hopeless) if type(outlook) is _Timed else outlook
        return found  # type: ignore[return-value]

    def _foreseen(self, view: JobView, shares: dict[tuple[Demand, int], float]) -> JobOutlook | _Timed | None:
        """What follows from the view at any time; None if it is not known when it attains."""
        job, beliefs = view.job, view.beliefs
        completes, unit_s = beliefs.completes, beliefs.unit_s
        if completes is None or unit_s is None or unit_s.mean <= 0:
            return None
        least, done, at = job.sizes[0], units_done(view), likely_units(view)
        at = done + 1.0 if at is None else at
        start_s, share = self._start_s(view), self._share(view, shares)
        limit = getattr(job.criterion, "deadline", None)
        if isinstance(limit, Duration):
            speeds = tuple((size, beliefs.speed_at(size) or 1.0) for size in _some(job.sizes))
            until_s = view.submitted_s + limit.time_s
            return _Timed(until_s, done, at, unit_s.mean, completes.points, speeds, start_s, share)
        allowed = units_allowed(view, 0.0)  # Epochs that are allowed are the same at any size and time.
        sure = _interpolated(completes.points, allowed)
        if sure < self._hopeless:
            return JobOutlook(sure - 1.0, least)
        left_s = max(1.0, (min(at, allowed) - done) * unit_s.mean / (beliefs.speed_at(least) or 1.0))
        return JobOutlook(sure * least / ((left_s + start_s) * share * least), least)

    def _unknown(self, view: JobView, now_s: float, shares: dict[tuple[Demand, int], float]) -> JobOutlook:
        """Nothing is known of when it attains: even chances, until an epoch tells. A stated run time is attained."""
        taken_s = (_unknown_left_s(view, now_s) + self._start_s(view)) * self._share(view, shares)
        return JobOutlook((1.0 if isinstance(view.job.criterion, RunTime) else 0.5) / taken_s, view.job.sizes[0])

    def _start_s(self, view: JobView) -> float:
        if not self._switching or view.size:
            return 0.0
        costs = view.costs
        return costs.prepare_s + costs.start_s + costs.checkpoint_s + costs.stop_s

    def _share(self, view: JobView, shares: dict[tuple[Demand, int], float]) -> float:
        """The largest share of a resource that the job takes at its smallest size."""
        shape = view.job.demand, view.job.sizes[0]
        found = shares.get(shape)
        if found is None:
            needs = zip(view.job.least, self._totals, strict=True)
            found = shares[shape] = max([1e-6, *(need / total for need, total in needs if total)])
        return found


def _interpolated(points: tuple[Point, ...], units: float) -> float:
    """As `chance_by`, for few points and many calls."""
    last = points[-1]
    if units >= last.x:
        return last.mean
    before = None
    for point in points:
        if point.x > units:
            if before is None:
                return 0.0
            return before.mean + (units - before.x) / (point.x - before.x) * (point.mean - before.mean)
        before = point
    return last.mean


@lru_cache(maxsize=256)
def _some(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Each of a few sizes; of many, each about three times as large as the one before, and the largest."""
    if len(sizes) <= _SIZES:
        return sizes
    found, last = [], 0.0
    for size in sizes:
        if size >= 3.0 * last or size == sizes[-1]:
            found.append(size)
            last = float(size)
    return tuple(found)


def _unknown_left_s(view: JobView, now_s: float) -> float:
    """Seconds that a job still needs at its smallest size of which it is not known when it attains."""
    size, beliefs = view.job.sizes[0], view.beliefs
    if beliefs.unit_s is not None and beliefs.needs_units is not None and beliefs.needs_units < NEVER:
        return max(
            1.0, (beliefs.needs_units - units_done(view)) * beliefs.unit_s.mean / (beliefs.speed_at(size) or 1.0)
        )
    ran_s = max(view.ran_at(now_s), 60.0)
    if isinstance(view.job.criterion, RunTime) and (done := progress(view, now_s)):
        return max(1.0, ran_s / done - ran_s)
    return max(1.0, view.remaining_s(now_s, size) or ran_s)


def _totals(snapshot: Snapshot) -> _Totals:
    nodes = [v.node for v in snapshot.nodes.values() if v.up]
    return float(sum(n.gpus for n in nodes)), sum(n.cores for n in nodes), sum(n.mem_mib for n in nodes)
