"""Rotary for training and queries in one queue: GPUs, cores and memory to the jobs that attain most for them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Annotated, Literal

from msgspec import Meta

from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import (
    estimate_in_words,
    need_in_words,
    progress,
)
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, LargestMemory
from hocket.policies.kit.job_outlooks import job_outlooks
from hocket.policies.kit.suspended_states import with_kept_states
from hocket.policies.registry import policy

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
    suspend: Annotated[
        Literal["auto", "arbitrated"],
        Meta(description="where states of paused jobs are kept: as is best for each, or arbitrated among all"),
    ] = "auto"
    memory_share: Annotated[
        float, Meta(ge=0, le=1, description="with suspend=arbitrated: of each node's memory, for paused jobs")
    ] = 0.25


@policy("rotary", params=Rotary, paper="Rotary, ICDE'23", reads_usage=False, reads=(), reads_past_jobs=True)
def decide(snapshot: Snapshot, params: Rotary) -> Plan:
    """Training and queries in one queue: what there is goes to the jobs that attain most for what they take.

    One measure for both: the chance that a job's criterion holds in time, over the time that it still needs and the
    share of the machine that it takes. Jobs that can hardly attain any more go last. At the end of each epoch the
    best go on; what is left goes, a size at a time, to where it helps most.
    """
    now_s = snapshot.now_s
    views = snapshot.jobs.data().values()
    usual_mib = _usual_mib(views)
    outlooks = job_outlooks(snapshot, params.hopeless, params.switching)
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

    memory = LargestMemory(snapshot)

    def needs(view: JobView) -> JobView:
        mem_mib = _mem_mib(view, params.memory)
        return memory.asked(view, mem_mib) if mem_mib else view

    def outlook(view: JobView) -> str:
        return need_in_words(view, now_s)

    turns = EpochTurns(snapshot, params, lambda view: (-worths[view.number],), why, boundary, needs, outlook)
    turns.shrink_due()
    turns.compare()
    if params.extra == "enough":
        sizes = {number: found.size for number, found in outlooks.items()}
        turns.grow(lambda growing: _enough_first(turns, growing, sizes))
    turns.grow()
    plan = turns.plan("waits: other jobs are likelier to attain for the work that they have left, or it does not fit")
    return with_kept_states(plan, snapshot, params.memory_share) if params.suspend == "arbitrated" else plan


def _printed(snapshot: Snapshot, params: Rotary) -> dict[int, float]:
    """Progress as Rotary prints it: the least first until all have come far enough, then the most."""
    now_s, views = snapshot.now_s, snapshot.jobs.data().values()
    done = {view.number: progress(view, now_s) or 0.0 for view in views}
    is_far = all(found >= params.threshold for found in done.values())
    return done if is_far else {number: -found for number, found in done.items()}


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
