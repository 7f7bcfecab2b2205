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
from hocket.policies.kit.wanted_sizes import jobs_with_a_share, wanted_sizes
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
        Meta(description="cores as they are reserved until deadlines, or a core each and the rest in turn"),
    ] = "enough"
    least_share: Annotated[
        float,
        Meta(ge=0, le=1, description="of the machine, for jobs without a deadline in time; one of them at least"),
    ] = 0.1
    memory: Annotated[
        Literal["sure", "mean", "off"],
        Meta(description="estimated memory that must be free: 95 % sure to be enough, the mean, or none"),
    ] = "sure"
    epoch_s: Annotated[float, Meta(gt=0, description="length of a running epoch of a query of usual memory")] = 60.0
    adaptive: Annotated[bool, Meta(description="whether running epochs are as long as the memory is large")] = True
    suspend: Annotated[
        Literal["auto", "arbitrated", "memory", "disk", "redo"],
        Meta(description="where states of paused jobs are kept: as is best for each, arbitrated among all, or one way"),
    ] = "auto"
    memory_share: Annotated[
        float, Meta(ge=0, le=1, description="with suspend=arbitrated or memory: of each node's memory, for paused jobs")
    ] = 0.25


@policy("rotary", params=Rotary, paper="Rotary, ICDE'23", reads_usage=False, reads=(), reads_past_jobs=True)
def decide(snapshot: Snapshot, params: Rotary) -> Plan:
    """Training and queries in one queue: what there is goes to the jobs that attain most for what they take.

    One measure for both: the chance that a job's criterion holds in time, over the time that it is expected to run and
    the share of the machine that it takes. In this order what is free until deadlines is reserved; jobs without one get
    what is left, and those that can hardly attain any more go last. At the end of each epoch the best go on.
    """
    now_s = snapshot.now_s
    views = snapshot.jobs.data().values()
    usual_mib = _usual_mib(views)
    outlooks = job_outlooks(snapshot, params.hopeless, params.switching)
    worths = {number: found.worth for number, found in outlooks.items()}
    if params.variant == "paper":
        worths = _worths_of_the_paper(snapshot, params)

    def why(view: JobView) -> str:
        return f"granted an epoch: {estimate_in_words(view, now_s)}"

    def boundary(view: JobView) -> Boundary:
        if view.job.kind is not Kind.QUERY:
            return EPOCH
        mem_mib = _mem_mib(view, "mean")
        times = min(_LONGEST, max(_SHORTEST, mem_mib / usual_mib)) if params.adaptive and mem_mib else 1.0
        # One that ended after the deadline would tell nothing in time.
        left_s = outlooks[view.number].until_s - now_s - view.costs.checkpoint_s - view.costs.start_s
        return Boundary("after", seconds=round(min(params.epoch_s * times, max(1.0, left_s)), 1))

    memory = LargestMemory(snapshot)

    def needs(view: JobView) -> JobView:
        mem_mib = _mem_mib(view, params.memory)
        return memory.with_memory(view, mem_mib) if mem_mib else view

    def outlook(view: JobView) -> str:
        return need_in_words(view, now_s)

    reserves = params.extra == "enough" and params.variant == "chances"
    first = jobs_with_a_share(snapshot, outlooks, params.least_share) if reserves else frozenset[int]()
    wanted = wanted_sizes(snapshot, outlooks, first) if reserves else dict[int, int]()

    def key(view: JobView) -> tuple[bool, bool, float]:
        return not wanted.get(view.number, 1), view.number not in first, -worths[view.number]

    turns = EpochTurns(snapshot, params, key, why, boundary, needs, outlook)
    turns.shrink_due()
    if reserves:
        reserved = {n: size for n, size in wanted.items() if size and (outlooks[n].until_s < inf or n in first)}
        spare = _Spare(turns, reserved)
        turns.compare(lambda view: wanted[view.number] > 0 or spare.take(view))
        for view in spare.in_the_way([v for v in turns.due if not wanted[v.number]]):
            turns.pause(view)
        turns.grow(lambda growing: _enough_first(turns, growing, wanted))
        turns.grow(lambda growing: _spare_in_turn(turns, growing, reserved))
    else:
        turns.compare()
        turns.grow()
    plan = turns.plan("waits: other jobs are likelier to attain for the work that they have left, or it does not fit")
    return plan if params.suspend == "auto" else with_kept_states(plan, snapshot, params.memory_share, params.suspend)


def _worths_of_the_paper(snapshot: Snapshot, params: Rotary) -> dict[int, float]:
    """Worths by the paper's rule, by progress: the least first until all have come far enough, then the most."""
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


def _enough_first(turns: EpochTurns, growing: list[JobView], wanted: dict[int, int]) -> Iterable[JobView]:
    """In order, each job up to the size that it is to have."""
    for view in growing:
        while (size := turns.draft.size_of(view)) < wanted[view.number]:
            yield view
            if turns.draft.size_of(view) == size:
                break


def _spare_in_turn(turns: EpochTurns, growing: list[JobView], reserved: dict[int, int]) -> Iterable[JobView]:
    """What is left, in turn: what jobs amid an epoch will need at its end is kept for them."""
    spare = _Spare(turns, reserved)
    while growing:
        left = []
        for view in growing:
            size = turns.draft.size_of(view)
            if spare.has(view, 1):
                yield view
                if (more := turns.draft.size_of(view) - size) > 0:
                    spare.change(view, -more)
                    left.append(view)
        growing = left


class _Spare:
    """GPUs and cores that are free, less those that are `reserved` (by job, its size) for jobs with deadlines."""

    def __init__(self, turns: EpochTurns, reserved: dict[int, int]) -> None:
        self._turns, self._reserved = turns, reserved
        self._known: tuple[float, float] | None = (
            None  # Computed when first needed: reserved sizes are given out before.
        )

    def _left(self) -> tuple[float, float]:
        if self._known is None:
            draft = self._turns.draft
            gpus, cores = float(draft.free_gpus), sum(free.cores for _node, free in draft.capacity)
            if self._reserved:
                for view in self._turns.snapshot.jobs.data().values():
                    size = self._reserved.get(view.number, 0)
                    if size and (lacks := max(0, size - draft.size_of(view))):
                        gpus -= lacks * view.job.demand.gpus
                        cores -= lacks * view.job.demand.cores
            self._known = gpus, cores
        return self._known

    def has(self, view: JobView, replicas: int) -> bool:
        """Whether there is enough for so many replicas of the job; always, where nothing is reserved."""
        if not self._reserved:
            return True
        (gpus, cores), demand = self._left(), view.job.demand
        return demand.gpus * replicas <= gpus + 1e-9 and demand.cores * replicas <= cores + 1e-9

    def change(self, view: JobView, replicas: int) -> None:
        """So many replicas of the job were given back; fewer than 0 if it has got some."""
        (gpus, cores), demand = self._left(), view.job.demand
        self._known = gpus + replicas * demand.gpus, cores + replicas * demand.cores

    def take(self, view: JobView) -> bool:
        """Take what the job needs at its smallest size, if there is so much."""
        if not self.has(view, view.job.sizes[0]):
            return False
        self.change(view, -view.job.sizes[0])
        return True

    def in_the_way(self, due: list[JobView]) -> Iterable[JobView]:
        """Which of these must make way so that jobs get their reserved sizes: the last first."""
        for view in reversed(due):
            gpus, cores = self._left()
            demand, size = view.job.demand, self._turns.draft.size_of(view)
            if self._reserved and ((gpus < -1e-9 and demand.gpus) or (cores < -1e-9 and demand.cores)):
                self.change(view, size)
                yield view
