"""Rotary for training and queries in one queue: GPUs, cores and memory to the jobs that attain most for them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hocket.model.criterion import Duration, RunTime
from hocket.model.curve import NEVER, Point
from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan
from hocket.model.resources import Demand
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import (
    estimate_in_words,
    likely_units,
    need_in_words,
    progress,
    units_allowed,
    units_done,
)
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, with_memory
from hocket.policies.registry import policy

_SIZES = 4  # of a job that are looked at, of many some
_SURE_ENOUGH = 0.95  # a chance that more cores hardly raise
_SURE = 1.645  # standard deviations: 95 % of a normal distribution lie below
_SHORTEST, _LONGEST = 0.25, 4.0  # of a running epoch, relative to that of a query of usual memory


class Rotary(EpochParams, frozen=True):
    variant: Annotated[
        Literal["chances", "paper"],
        Meta(description="rank by what is likely to be attained for the work left, or by progress as Rotary prints it"),
    ] = "chances"
    threshold: Annotated[
        float, Meta(ge=0, le=1, description="with variant=paper: progress of all from which on the farthest go first")
    ] = 0.5
    hopeless: Annotated[
        float,
        Meta(ge=0, le=1, description="jobs less likely than this to attain go last, unless they have no deadline"),
    ] = 0.05
    switching: Annotated[bool, Meta(description="whether a job that waits must be worth its start and the pause")] = (
        True
    )
    extra: Annotated[
        Literal["enough", "turn"],
        Meta(description="further cores first to jobs up to where they attain most for what they take, or all in turn"),
    ] = "enough"
    memory: Annotated[
        Literal["sure", "mean", "off"],
        Meta(description="estimated memory that must be free: 95 % sure to be enough, the mean, or none"),
    ] = "sure"
    epoch_s: Annotated[float, Meta(gt=0, description="length of a running epoch of a query of usual memory")] = 60.0
    adaptive: Annotated[bool, Meta(description="whether running epochs are as long as the memory is large")] = True


@policy("rotary", params=Rotary, paper="Rotary, ICDE'23", reads_usage=False, reads=(), reads_past_jobs=True)
def decide(snapshot: Snapshot, params: Rotary) -> Plan:
    """Training and queries in one queue: what there is goes to the jobs that attain most for what they take.

    One measure for both: the chance that a job's criterion holds in time, over the time that it still needs and the
    share of the machine that it takes. Jobs that can hardly attain any more go last. At the end of each epoch the
    best go on; what is left goes, a size at a time, to where it helps most.
    """
    now_s = snapshot.now_s
    views = snapshot.jobs.data().values()
    totals, usual_mib = _totals(snapshot), _usual_mib(views)
    shares: dict[tuple[Demand, int], float] = {}
    outlooks = {}
    for view in views:
        shape = view.job.demand, view.job.sizes[0]
        if (share := shares.get(shape)) is None:
            share = shares[shape] = _share(view, totals)
        outlooks[view.number] = _outlook(view, now_s, params, share)
    worths = {number: found.worth for number, found in outlooks.items()}
    if params.variant == "paper":
        worths = _printed(snapshot, params)

    def why(view: JobView) -> str:
        return f"granted an epoch: {estimate_in_words(view, now_s)}"

    def boundary(view: JobView) -> Boundary:
        if view.job.kind is not Kind.QUERY:
            return EPOCH
        mem_mib = _mem_mib(view, "mean")
        times = min(_LONGEST, max(_SHORTEST, mem_mib / usual_mib)) if params.adaptive and mem_mib else 1.0
        return Boundary("after", seconds=round(params.epoch_s * times, 1))

    def needs(view: JobView) -> JobView:
        mem_mib = _mem_mib(view, params.memory)
        return with_memory(view, mem_mib, snapshot) if mem_mib else view

    def outlook(view: JobView) -> str:
        return need_in_words(view, now_s)

    turns = EpochTurns(snapshot, params, lambda view: (-worths[view.number],), why, boundary, needs, outlook)
    turns.shrink_due()
    turns.compare()
    if params.extra == "enough":
        sizes = {number: found.size for number, found in outlooks.items()}
        turns.grow(lambda growing: _enough_first(turns, growing, sizes))
    turns.grow()
    return turns.plan("waits: other jobs are likelier to attain for the work that they have left, or it does not fit")


def _printed(snapshot: Snapshot, params: Rotary) -> dict[int, float]:
    """Progress as Rotary prints it: the least first until all have come far enough, then the most."""
    now_s, views = snapshot.now_s, snapshot.jobs.data().values()
    done = {view.number: progress(view, now_s) or 0.0 for view in views}
    is_far = all(found >= params.threshold for found in done.values())
    return done if is_far else {number: -found for number, found in done.items()}


class _Outlook(Struct, frozen=True, gc=False):
    """What is to be expected of a job at the size at which it attains most for what it takes."""

    worth: float  # what is attained for a second of the whole machine; below 0 for jobs that can hardly attain any more
    size: int


def _outlook(view: JobView, now_s: float, params: Rotary, share: float) -> _Outlook:
    """Over its sizes: the chance to attain in time, over the time left and the share of the machine."""
    start_s = 0.0
    if params.switching and not view.size:
        costs = view.costs
        start_s = costs.prepare_s + costs.start_s + costs.checkpoint_s + costs.stop_s
    job, beliefs = view.job, view.beliefs
    least = job.sizes[0]
    completes, unit_s = beliefs.completes, beliefs.unit_s
    if completes is None or unit_s is None or unit_s.mean <= 0:
        taken_s = (_unknown_left_s(view, now_s) + start_s) * share
        # Nothing is known of when it attains: even chances, until an epoch tells. A stated run time is attained.
        return _Outlook((1.0 if isinstance(job.criterion, RunTime) else 0.5) / taken_s, least)
    done, at, points = units_done(view), likely_units(view), completes.points
    at = done + 1.0 if at is None else at
    limit = getattr(job.criterion, "deadline", None)
    in_time = isinstance(limit, Duration)
    time_s = max(0.0, view.submitted_s + limit.time_s - now_s) if isinstance(limit, Duration) else 0.0
    allowed = units_allowed(view, now_s)
    best, most = _Outlook(-inf, least), 0.0
    for size in _some(job.sizes) if in_time else (least,):  # Epochs that are allowed are the same at any size.
        speed = beliefs.speed_at(size) or 1.0
        if in_time:
            allowed = done + time_s * speed / unit_s.mean
        sure = _interpolated(points, allowed)
        left_s = max(1.0, (min(at, allowed) - done) * unit_s.mean / speed)
        worth = sure * least / ((left_s + start_s) * share * size)
        most = max(most, sure)
        if worth > best.worth:
            best = _Outlook(worth, size)
        elif sure >= _SURE_ENOUGH:
            break  # More can only take more.
    return best if most >= params.hopeless else _Outlook(most - 1.0, least)


def _interpolated(points: tuple[Point, ...], units: float) -> float:
    """As `chance_by`, for few points and many calls."""
    before = None
    for point in points:
        if point.x > units:
            if before is None:
                return 0.0
            return before.mean + (units - before.x) / (point.x - before.x) * (point.mean - before.mean)
        before = point
    return points[-1].mean


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


def _totals(snapshot: Snapshot) -> tuple[float, float, float]:
    nodes = [v.node for v in snapshot.nodes.values() if v.up]
    return float(sum(n.gpus for n in nodes)), sum(n.cores for n in nodes), sum(n.mem_mib for n in nodes)


def _share(view: JobView, totals: tuple[float, float, float]) -> float:
    """The largest share of a resource that the job takes at its smallest size."""
    return max([1e-6, *(need / total for need, total in zip(view.job.least, totals, strict=True) if total)])


def _mem_mib(view: JobView, how: str) -> float:
    """Its estimated memory; 0 if there is no estimate, or it shall not count."""
    memory = view.beliefs.memory_mib
    if memory is None or how == "off":
        return 0.0
    at = memory.points[-1]
    return at.mean + (_SURE * at.sd if how == "sure" and at.sd < inf else 0.0)


def _usual_mib(views: Iterable[JobView]) -> float:
    """The median memory of queries."""
    known = sorted(m for v in views if v.job.kind is Kind.QUERY and (m := _mem_mib(v, "mean")))
    return known[len(known) // 2] if known else 1.0


def _enough_first(turns: EpochTurns, growing: list[JobView], sizes: dict[int, int]) -> Iterable[JobView]:
    """In order, each job up to the size at which it attains most for what it takes."""
    for view in growing:
        while (size := turns.draft.size_of(view)) < sizes[view.number]:
            yield view
            if turns.draft.size_of(view) == size:
                break
