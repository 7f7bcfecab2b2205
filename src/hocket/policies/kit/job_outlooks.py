"""What jobs are likely to attain for what they take: the chance that a criterion holds in time, over the time that the
job still needs and the share of the machine that it takes, at the best of its sizes.

An outlook follows from the job's view, and from the time if its deadline is one. What follows from the view alone is
kept from one decision to the next (`decision_cache.py`), as long as the view is the very same.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import exp, inf, log

from msgspec import Struct

from hocket.model.criterion import Duration, RunTime
from hocket.model.curve import NEVER, Point
from hocket.model.resources import Demand
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import effort_exponent, likely_units, progress, units_allowed, units_done
from hocket.policies.kit.decision_cache import borrow

_SIZES = 4  # of a job that are all looked at; of more, some
_SURE_ENOUGH = 0.95  # a chance that more cores hardly raise
_LEFT_STEP = 0.02  # of the logarithm of the time that is left until a deadline
_Totals = tuple[float, float, float]  # GPUs, cores and memory of all nodes that are up


class SizeStep(Struct, frozen=True, gc=False, array_like=True):
    """What a job gains by a larger size."""

    worth: float  # the chance gained for a second of the whole machine
    size: int
    takes_s: float  # seconds of all its replicas together, until it attains or is late


class JobOutlook(Struct, frozen=True, gc=False):
    """What is to be expected of a job at the size at which it attains most for what it takes, and at larger ones."""

    worth: float  # what is attained for a second of the whole machine; below 0 for jobs that can hardly attain any more
    size: int
    steps: tuple[SizeStep, ...] = ()  # this size, and then larger ones, each worth less than the one before
    until_s: float = inf  # its deadline in time
    work_s: float = 0.0  # seconds at speed 1 until it has attained, nearly as likely as it can at this size
    speeds: tuple[tuple[int, float], ...] = ()  # by size


class _Timed(Struct, frozen=True, gc=False):
    """What the outlook of a job with a deadline in time is computed from, at any time."""

    until_s: float  # its deadline
    done: float  # units
    unit_s: float
    points: tuple[Point, ...]  # units → chance
    spent: tuple[float, ...]  # at each point: units that it takes on average until it attains, or is there
    speeds: tuple[tuple[int, float], ...]  # of its sizes
    start_s: float
    share: float

    def with_left(self, left_s: float, hopeless: float) -> JobOutlook:
        """Its sizes by the chance that they bring for the time of its share until it attains, or is late."""
        time_s = max(0.0, left_s - self.start_s)
        done, unit_s, start_s = self.done, self.unit_s, self.start_s
        least = self.speeds[0][0]
        each = self.share / least
        sizes: list[tuple[float, float, int]] = []  # (seconds of replicas, chance, size)
        sure = 0.0
        for size, speed in self.speeds:
            before = sure
            allowed = done + time_s * speed / unit_s
            sure, units = self._at(allowed)
            if sure > before or not sizes:
                takes = (max(1.0, (units - done) * unit_s / speed) + start_s) * size
                sizes.append((takes, sure, size))
            if sure >= _SURE_ENOUGH:
                break  # More can only take more.
        if sure < hopeless:
            return JobOutlook(sure - 1.0, least, (SizeStep(sure - 1.0, least, 0.0),), self.until_s)
        steps: list[SizeStep] = []
        at_takes, at_sure, at_size = 0.0, 0.0, 0
        while True:
            best, worth = None, 0.0
            for takes, chance, size in sizes:
                if size > at_size and chance > at_sure:
                    slope = (chance - at_sure) / max((takes - at_takes) * each, 1e-9)
                    if slope > worth:
                        best, worth = (takes, chance, size), slope
            if best is None:
                break
            at_takes, at_sure, at_size = best
            steps.append(SizeStep(worth, at_size, at_takes))
        if not steps:
            return JobOutlook(0.0, least, (SizeStep(0.0, least, 0.0),), self.until_s)
        first = steps[0]
        sure = next(chance for _takes, chance, size in sizes if size == first.size)
        work_s = max(1.0, (self._first(0.98 * sure) - done) * unit_s) + start_s
        return JobOutlook(first.worth, first.size, tuple(steps), self.until_s, work_s, self.speeds)

    def _first(self, sure: float) -> float:
        """The first units by which it has this chance."""
        before = None
        for point in self.points:
            if point.mean >= sure:
                if before is None or point.mean <= before.mean:
                    return point.x
                return before.x + (sure - before.mean) / (point.mean - before.mean) * (point.x - before.x)
            before = point
        return self.points[-1].x

    def _at(self, units: float) -> tuple[float, float]:
        """The chance by so many units, and how many of them it takes on average until it attains, or is there."""
        points, spent = self.points, self.spent
        if units < points[0].x:
            return 0.0, units
        last = points[-1]
        if units >= last.x:
            return last.mean, spent[-1] + (units - last.x) * (1.0 - last.mean)
        i = 1
        while points[i].x < units:
            i += 1
        a, b = points[i - 1], points[i]
        sure = a.mean + (units - a.x) / (b.x - a.x) * (b.mean - a.mean)
        return sure, spent[i - 1] + (units - a.x) * (1.0 - 0.5 * (a.mean + sure))


def _spent(points: tuple[Point, ...]) -> tuple[float, ...]:
    """At each point, the units that it takes on average until it attains, or is there: those missed weigh in full."""
    found = [points[0].x]
    for a, b in pairwise(points):
        found.append(found[-1] + (b.x - a.x) * (1.0 - 0.5 * (a.mean + b.mean)))
    return tuple(found)


def job_outlooks(snapshot: Snapshot, hopeless: float, switching: bool) -> dict[int, JobOutlook]:
    """The outlook of each job, by its number.

    Jobs less likely than `hopeless` to attain have a worth below 0. With `switching`, a job that waits has its start,
    and the pause of another, counted as time that it needs.
    """
    key = (_Outlooks, snapshot.capacity.layout, hopeless, switching)
    with borrow(key, lambda: _Outlooks(hopeless, switching)) as kept:
        return kept.of(snapshot)


class _Outlooks:
    """The outlooks of jobs on one cluster, kept between decisions; the result depends on the snapshot only."""

    __slots__ = ("_hopeless", "_known", "_switching", "_timed", "_totals")

    def __init__(self, hopeless: float, switching: bool) -> None:
        self._hopeless, self._switching = hopeless, switching
        self._totals: _Totals = (0.0, 0.0, 0.0)
        self._known: dict[int, tuple[JobView, JobOutlook | _Timed]] = {}  # job's number → its view, and what follows
        self._timed: dict[int, tuple[_Timed, int, JobOutlook]] = {}  # and of those with a deadline, at a time left

    def of(self, snapshot: Snapshot) -> dict[int, JobOutlook]:
        """The outlooks of all jobs in it."""
        now_s, views = snapshot.now_s, snapshot.jobs.data().values()
        totals = machine_totals(snapshot)
        if totals != self._totals or len(self._known) > 2 * len(views) + 1000:
            self._totals, self._known, self._timed = totals, {}, {}
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
            found[number] = self._at_time(number, outlook, now_s) if type(outlook) is _Timed else outlook
        return found  # type: ignore[return-value]

    def _at_time(self, number: int, timed: _Timed, now_s: float) -> JobOutlook:
        """Its outlook now; the time left is rounded down by 2 % at most, so that it changes with few decisions."""
        left_s = timed.until_s - now_s
        rounded = int(log(left_s) / _LEFT_STEP) if left_s > 1.0 else 0
        had = self._timed.get(number)
        if had is not None and had[0] is timed and had[1] == rounded:
            return had[2]
        outlook = timed.with_left(exp(rounded * _LEFT_STEP) if rounded else max(0.0, left_s), self._hopeless)
        if rounded:
            self._timed[number] = timed, rounded, outlook
        return outlook

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
            exponent = effort_exponent(view)
            points = completes.points
            if exponent != 1.0:  # Units are shares of its time from here on.
                done = float(done**exponent)
                points = tuple(Point(p.x**exponent, p.mean) for p in points)
            return _Timed(until_s, done, unit_s.mean, points, _spent(points), speeds, start_s, share)
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
    """Each of a few sizes; of many, each larger by a third than the one before, and the largest."""
    if len(sizes) <= _SIZES:
        return sizes
    found, last = [], 0.0
    for size in sizes:
        if size >= 1.33 * last or size == sizes[-1]:
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


def machine_totals(snapshot: Snapshot) -> _Totals:
    """GPUs, cores and memory of all nodes that are up."""
    nodes = [v.node for v in snapshot.nodes.values() if v.up]
    return float(sum(n.gpus for n in nodes)), sum(n.cores for n in nodes), sum(n.mem_mib for n in nodes)
