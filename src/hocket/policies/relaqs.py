"""ReLAQS: cores to the queries whose answers improve most, by their last results alone."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Annotated

from msgspec import Meta

from hocket.model.criterion import Goal
from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns
from hocket.policies.registry import policy


class Relaqs(EpochParams, frozen=True):
    epoch_s: Annotated[float, Meta(gt=0, description="length of a running epoch of every query")] = 60.0


@policy("relaqs", params=Relaqs, paper="ReLAQS, Middleware'19", reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: Relaqs) -> Plan:
    """A core each to the queries that improve most, then each further core to where it promises most.

    What an epoch brought is what the next one is expected to bring; new queries go first. It knows neither the past
    nor memory, and all running epochs are equally long.
    """
    gains = {view.number: _gain(view) for view in snapshot.jobs.data().values()}

    def key(view: JobView) -> tuple[float]:
        return (-gains[view.number],)

    def why(view: JobView) -> str:
        if gains[view.number] >= 1.0:
            return "granted an epoch: it has not answered yet"
        return f"granted an epoch: its last one improved its answer most, by {gains[view.number]:.1%}"

    def boundary(view: JobView) -> Boundary:
        return Boundary("after", seconds=params.epoch_s) if view.job.kind is Kind.QUERY else EPOCH

    turns = EpochTurns(snapshot, params, key, why, boundary)
    turns.shrink_due()
    turns.compare()
    turns.grow(lambda growing: _most_gain_first(turns, growing, gains))
    return turns.plan("waits: the answers of other queries improve more")


def _gain(view: JobView) -> float:
    """What its last epoch brought of what it is asked for; 1 for one that has not told."""
    goal = view.job.criterion
    if not isinstance(goal, Goal):
        return 1.0 if not view.observations else 0.0
    values = [o.metrics[goal.metric] for o in view.observations[-2:] if goal.metric in o.metrics]
    if not values:
        return 1.0
    first = values[0] if len(values) > 1 else (0.0 if goal.relation == ">=" else 1.0)
    gained = values[-1] - first if goal.relation == ">=" else first - values[-1]
    return min(1.0, gained) if gained > 0 else 0.0


def _most_gain_first(turns: EpochTurns, growing: list[JobView], gains: dict[int, float]) -> Iterable[JobView]:
    """The query to which a further core promises most: what it gained, shared among the cores that it has."""
    line = [(-gains[v.number] / max(turns.draft.size_of(v), 1), v.number, v) for v in growing]
    heapify(line)
    while line:
        _worth, number, view = heappop(line)
        before = turns.draft.size_of(view)
        yield view
        if (size := turns.draft.size_of(view)) > before:
            heappush(line, (-gains[number] / size, number, view))
