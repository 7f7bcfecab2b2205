"""Least accuracy first, a baseline of Rotary."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hocket.model.criterion import Goal
from hocket.model.job import Kind
from hocket.model.partition import EPOCH, Boundary
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, turn_key
from hocket.policies.registry import policy


class Laf(EpochParams, frozen=True):
    by: Annotated[
        Literal["kind", "target", "value"],
        Meta(description="the accuracy that is asked for, that it has now, or for queries this and for training that"),
    ] = "kind"
    epoch_s: Annotated[float, Meta(gt=0, description="length of a running epoch of every query")] = 60.0
    extra: Annotated[bool, Meta(description="whether elastic jobs get what is left, a size more in turn")] = True


@policy("laf", params=Laf, paper="Rotary, ICDE'23", reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: Laf) -> Plan:
    """Jobs with the lowest accuracy go first: of queries the one they have, of training the one they are asked for.

    Jobs without a goal take turns behind them, an epoch each.
    """

    def key(view: JobView) -> tuple[float, ...]:
        accuracy = _accuracy(view, params)
        return (1.0, *turn_key(view, snapshot.now_s)) if accuracy is None else (0.0, accuracy)

    def why(view: JobView) -> str:
        accuracy = _accuracy(view, params)
        if accuracy is None:
            return "granted an epoch: it is its turn"
        return f"granted an epoch: the least accuracy, {accuracy:.0%}"

    def boundary(view: JobView) -> Boundary:
        return Boundary("after", seconds=params.epoch_s) if view.job.kind is Kind.QUERY else EPOCH

    turns = EpochTurns(snapshot, params, key, why, boundary)
    if params.extra:
        turns.shrink_due()
    turns.compare()
    if params.extra:
        turns.grow()
    return turns.plan("waits: jobs with less accuracy go first, those without a goal take turns")


def _accuracy(view: JobView, params: Laf) -> float | None:
    """That by which it is ranked; of a metric that falls, one less its value."""
    goal = view.job.criterion
    if not isinstance(goal, Goal):
        return None
    value = goal.target
    if params.by == "value" or (params.by == "kind" and view.job.kind is Kind.QUERY):
        seen = [o.metrics[goal.metric] for o in view.observations[-1:] if goal.metric in o.metrics]
        value = seen[-1] if seen and seen[-1] == seen[-1] else (0.0 if goal.relation == ">=" else 1.0)
    return value if goal.relation == ">=" else 1.0 - value
