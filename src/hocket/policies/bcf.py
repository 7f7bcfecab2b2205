"""Biggest convergence criterion first, a baseline of Rotary."""

from __future__ import annotations

from hocket.model.criterion import Convergence
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, turn_key
from hocket.policies.registry import policy


class Bcf(EpochParams, frozen=True):
    pass


@policy("bcf", params=Bcf, paper="Rotary, ICDE'23", reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: Bcf) -> Plan:
    """Jobs that shall converge go first, those to the biggest change first; the others take turns, an epoch each."""

    def key(view: JobView) -> tuple[float, ...]:
        criterion = view.job.criterion
        return (
            (0.0, -criterion.change) if isinstance(criterion, Convergence) else (1.0, *turn_key(view, snapshot.now_s))
        )

    def why(view: JobView) -> str:
        criterion = view.job.criterion
        if not isinstance(criterion, Convergence):
            return "granted an epoch: it is its turn"
        return f"granted an epoch: the biggest change that counts as converged, {criterion.change:g}"

    turns = EpochTurns(snapshot, params, key, why)
    turns.compare()
    return turns.plan("waits: jobs that converge at bigger changes go first, the others take turns")
