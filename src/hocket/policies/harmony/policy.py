"""Harmony: groups of jobs whose phases complement each other, on whole machines."""

from __future__ import annotations

from hocket.model.job import Kind
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony.knobs import Harmony
from hocket.policies.harmony.turn import Turn
from hocket.policies.registry import policy


def rank(view: JobView, _now_s: float, _params: Harmony) -> tuple[int]:
    """Jobs for groups that are yet to be settled, then those that are or were turned down; then all others."""
    if view.job.kind is not Kind.PARAMETER_SERVER:
        return (2,)
    return (0,) if view.memo is None else (1,)


@policy("harmony", params=Harmony, order=rank, paper="Harmony, ICDE'21", reads_usage=False)
def decide(snapshot: Snapshot, params: Harmony) -> Plan:
    """Parameter-server jobs share groups of whole machines, their COMP and COMM phases taking turns.

    Newcomers are profiled in a group. Then each goes where it raises utilisation most. When a job ends, another like it
    takes its place, or groups are formed anew, as few as it takes. Other jobs run alone on what is free.
    """
    turn = Turn(snapshot, params)
    turn.start_others()
    turn.settle()
    turn.repair()
    turn.take_in()
    return turn.plan()
