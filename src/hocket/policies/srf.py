"""Shortest run time first, a baseline of Rotary."""

from __future__ import annotations

from hocket.model.criterion import Duration, RunTime
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, turn_key
from hocket.policies.registry import policy

_EPOCH_S = 60.0  # for limits in seconds beside limits in epochs, of a job whose epochs have no known length


class Srf(EpochParams, frozen=True):
    pass


@policy("srf", params=Srf, paper="Rotary, ICDE'23", reads_usage=False, reads=(), reads_past_jobs=True)
def decide(snapshot: Snapshot, params: Srf) -> Plan:
    """Jobs that run for a stated time go first, the shortest first; the others take turns, an epoch each."""

    def key(view: JobView) -> tuple[float, ...]:
        limit = _limit(view)
        return (1.0, *turn_key(view, snapshot.now_s)) if limit is None else (0.0, limit)

    def why(view: JobView) -> str:
        criterion = view.job.criterion
        if not isinstance(criterion, RunTime):
            return "granted an epoch: it is its turn"
        return f"granted an epoch: the shortest run time, {criterion.limit}"

    turns = EpochTurns(snapshot, params, key, why)
    turns.compare()
    return turns.plan("waits: jobs with shorter run times go first, the others take turns")


def _limit(view: JobView) -> float | None:
    """How long it runs, in epochs; None if it does not say."""
    criterion = view.job.criterion
    if not isinstance(criterion, RunTime):
        return None
    limit = criterion.limit
    if isinstance(limit, Duration):
        unit_s = view.beliefs.unit_s
        return limit.time_s / (unit_s.mean if unit_s is not None and unit_s.mean > 0 else _EPOCH_S)
    return float(limit.count)
