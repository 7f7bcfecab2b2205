"""Rotary for training and queries in one queue: GPUs, cores and memory to the jobs that attain most for them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hocket.model.criterion import RunTime
from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import (
    chance,
    estimate_in_words,
    likely_units,
    progress,
    units_allowed,
    units_done,
)
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, with_memory
from hocket.policies.registry import policy

_SIZES = 6  # of a job that are looked at, of many some
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
    outlooks = {v.number: _outlook(v, now_s, params, _share(v, totals)) for v in views}
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

    turns = EpochTurns(snapshot, params, lambda view: (-worths[view.number],), why, boundary, needs)
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
        start_s = view.costs.prepare_s + view.costs.start_s + view.costs.checkpoint_s + view.costs.stop_s
    least = view.job.sizes[0]
    best, most = _Outlook(-inf, least), 0.0
    for size in _some(view.job.sizes):
        sure = chance(view, now_s, size)
        taken_s = (_left_s(view, now_s, size) + start_s) * share * size / least
        if sure is None:
            return _Outlook(0.5 / taken_s, least)  # Nothing is known: an epoch tells. Even chances until then.
        most = max(most, sure)
        if sure / taken_s > best.worth:
            best = _Outlook(sure / taken_s, size)
    if most < params.hopeless and not isinstance(view.job.criterion, RunTime):
        return _Outlook(most - 1.0, least)
    return best


def _some(sizes: tuple[int, ...]) -> Iterable[int]:
    """Each of a few sizes; of many, about each half as large again as the one before, and the largest."""
    if len(sizes) <= _SIZES:
        return sizes
    found, last = [], 0.0
    for size in sizes:
        if size >= 1.5 * last or size == sizes[-1]:
            found.append(size)
            last = float(size)
    return found


def _left_s(view: JobView, now_s: float, size: int) -> float:
    """Seconds that it still needs at a size, as is likely; about an epoch's time if nothing is known."""
    unit_s = view.beliefs.unit_s
    speed = view.beliefs.speed_at(size) or 1.0
    criterion = view.job.criterion
    if isinstance(criterion, RunTime) or criterion is None:
        done = progress(view, now_s)
        ran_s = max(view.ran_at(now_s), 1.0)
        if unit_s is not None and view.beliefs.needs_units is not None:
            return max(1.0, (view.beliefs.needs_units - units_done(view)) * unit_s.mean / speed)
        return max(1.0, view.remaining_s(now_s, size) or (ran_s / done - ran_s if done else ran_s))
    if unit_s is None or unit_s.mean <= 0:
        return max(60.0, view.ran_at(now_s))
    allowed = units_allowed(view, now_s, size)
    at = likely_units(view)
    if at is None:
        at = units_done(view) + 1.0
    return max(1.0, (min(at, allowed) - units_done(view)) * unit_s.mean / speed)


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
