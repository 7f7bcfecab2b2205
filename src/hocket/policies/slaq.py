"""SLAQ: GPUs to the jobs whose loss will fall most in the next round."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.gain_rounds import epochs_in, gain_of_unknown, in_rounds, rank_by_loss, trend_of
from hocket.policies.registry import Params, policy


class Slaq(Params, frozen=True):
    round_s: Annotated[float, Meta(gt=0, description="how often all GPUs are shared out anew")] = 300.0


@policy("slaq", params=Slaq, order=rank_by_loss, paper="SLAQ, SoCC'17", reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: Slaq) -> Plan:
    """In rounds, GPUs to the jobs whose loss is predicted to fall most by each; the others shrink, or wait.

    Losses are told apart by the largest fall that each job has seen, so that all count alike: a newcomer goes before
    those whose loss hardly falls any more, and one that has nearly converged last.
    """
    now_s, round_s = snapshot.now_s, params.round_s

    def gain(view: JobView, size: int) -> float:
        seen = trend_of(view)
        if seen is None:
            return gain_of_unknown(view, round_s, size, now_s, round_s)
        return seen.gain(epochs_in(view, round_s, size, now_s)) / seen.largest if seen.largest else 0.0

    return in_rounds(snapshot, round_s, gain)
