"""A live controller outlives its policy, which may have been written yesterday.

A decision that raises costs a cycle: the controller sees to that. But ranks and the moments at which they change
are computed while events are folded, which must not end halfway; and a policy's memos must fit into the journal, or no
further cycle could be written.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hocket.control.controller import OnPolicyError
from hocket.control.journal.stored import ENCODER
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.registry import BoundPolicy


def guarded(policy: BoundPolicy, on_error: OnPolicyError) -> BoundPolicy:
    """The policy, in whose ranks and notes no fault ends the controller; `on_error` is called with each."""
    decide, ranked, shifting = policy.decide, policy.order, policy.shifts

    def decided(snapshot: Snapshot) -> Plan:
        plan = decide(snapshot)
        try:
            ENCODER.encode(plan)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"its plan cannot be written down: {error}") from error
        return plan

    def order(view: JobView, now_s: float) -> tuple[Any, ...]:
        try:
            rank = ranked(view, now_s)
            if isinstance(rank, tuple):
                return rank
            raise TypeError(f"its order must give a tuple, not {rank!r}")
        except Exception as error:
            on_error(error)
            return view.rank  # as it stood before

    def shifts(view: JobView, now_s: float) -> float | None:
        assert shifting is not None
        try:
            return shifting(view, now_s)
        except Exception as error:
            on_error(error)
            return None

    return replace(policy, decide=decided, order=order, shifts=None if shifting is None else shifts)
