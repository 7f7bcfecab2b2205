"""Rotary-AQP: a core to each query by its estimated progress while memory lasts, then further cores in turn."""

from __future__ import annotations

from statistics import median
from typing import Annotated

from msgspec import Meta

from hocket.model.criterion import Goal
from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import goal_in_words, progress
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, LargestMemory
from hocket.policies.registry import policy

_SHORTEST, _LONGEST = 0.25, 4.0  # of a running epoch, relative to that of a query of usual memory


class RotaryAqp(EpochParams, frozen=True):
    epoch_s: Annotated[float, Meta(gt=0, description="length of a running epoch of a query of usual memory")] = 60.0
    adaptive: Annotated[bool, Meta(description="whether running epochs are as long as the memory is large")] = True
    memory: Annotated[bool, Meta(description="whether a query needs its estimated memory to start")] = True


@policy(
    "rotary_aqp", params=RotaryAqp, paper="Rotary, ICDE'23", reads_usage=False, reads=(), reads_past_jobs=True
)  # fmt: skip
def decide(snapshot: Snapshot, params: RotaryAqp) -> Plan:
    """Queries that will have come nearest to their goal in the next epoch get a core first, then further ones in turn.

    Algorithm 4 of Rotary. The accuracy after the next epoch is estimated from past queries and from the query's own
    results together, as a line over its run time; running epochs are as long as the estimated memory is large.
    """
    now_s = snapshot.now_s
    views = snapshot.jobs.data().values()
    usual_mib = median([m for v in views if (m := _mem_mib(v))] or [1.0])

    def epoch_s(view: JobView) -> float:
        mem_mib = _mem_mib(view)
        if not params.adaptive or not mem_mib:
            return params.epoch_s
        return round(params.epoch_s * min(_LONGEST, max(_SHORTEST, mem_mib / usual_mib)), 1)

    foreseen = {view.number: _foreseen(view, now_s, epoch_s(view)) for view in views}

    def why(view: JobView) -> str:
        at = foreseen[view.number]
        return f"granted an epoch of {epoch_s(view):g} s: estimated to have {at:.0%} of {goal_in_words(view)} after it"

    def boundary(view: JobView) -> Boundary:
        return Boundary("after", seconds=epoch_s(view)) if view.job.kind is Kind.QUERY else EPOCH

    largest = LargestMemory(snapshot)

    def needs(view: JobView) -> JobView:
        memory = view.beliefs.memory_mib
        return largest.with_memory(view, memory.points[-1].mean) if params.memory and memory is not None else view

    def outlook(view: JobView) -> str:
        return f"would have {foreseen[view.number]:.0%} of {goal_in_words(view)}"

    turns = EpochTurns(snapshot, params, lambda view: (-foreseen[view.number],), why, boundary, needs, outlook)
    turns.shrink_due()
    turns.compare()
    turns.grow()
    return turns.plan("waits: other queries are estimated to come nearer to their goals, or its memory is not free")


def _mem_mib(view: JobView) -> float:
    memory = view.beliefs.memory_mib
    return memory.points[-1].mean if memory is not None else view.job.demand.mem_mib * view.job.sizes[0]


def _foreseen(view: JobView, now_s: float, epoch_s: float) -> float:
    """The share of its goal that it is estimated to have after one more epoch at its smallest size, up to 1."""
    goal, line = view.job.criterion, view.beliefs.progress
    if not isinstance(goal, Goal) or goal.relation != ">=" or goal.target <= 0 or line is None:
        return progress(view, now_s) or 0.0
    at_s = view.done_at(now_s) + epoch_s * view.beliefs.speed_at(view.job.sizes[0])
    (first, last) = line.points
    slope = (last.mean - first.mean) / (last.x - first.x)
    return min(1.0, max(0.0, (first.mean + slope * at_s) / goal.target))
