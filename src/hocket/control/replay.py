"""Makes a journal's decisions again: its events are folded, and every plan is compared with the recorded one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.diff import changes
from hocket.control.journal import JournalError
from hocket.control.ports import Beginning, Cycle, Header
from hocket.control.restore import begun_at
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy, bind


class DecisionSide(Struct, frozen=True):
    """One of two plans that differ. There is none if the policy was not called."""

    asked: bool
    changes: dict[str, str] = {}  # tenant → what the plan changes for it
    reasons: dict[str, str] = {}
    refused: tuple[str, ...] = ()
    plan: Plan | None = None


class Difference(Struct, frozen=True):
    """The first decision of a replay that differs from the record."""

    cycle: int  # counted from 1, as the journal's rows are
    at_s: float
    fields: tuple[str, ...]  # of the plan, that differ
    recorded: DecisionSide
    now: DecisionSide


class Replay(Struct, frozen=True):
    """The result of a replay: all the same, or the first difference, at which it stops."""

    cycles: int
    decisions: int  # that were the same
    difference: Difference | None = None
    policies: tuple[str, ...] = ()  # that decided, one after another
    reworded: int = 0  # of the decisions that were the same: those with differently worded reasons


class PolicyBrokeError(RuntimeError):
    """A policy raised an exception at a cycle for which a decision is recorded; the message names the cycle."""


def replay(
    header: Header,
    cycles: Iterable[Cycle],
    policy: BoundPolicy,
    done: Callable[[int], None] = lambda _cycles: None,
    beginning: Beginning | None = None,
) -> Replay:
    """Fold the cycles of a journal, decide wherever a plan is recorded, and stop at the first that differs.

    Plans are compared byte for byte, except for the wording of reasons, which may differ in another version of Hocket:
    such decisions are counted. If another policy than the recorded one decides, only the effects of its plans are
    compared: it has other memos and waits for other events; it also decides after the recorded policy was changed.
    `done` is called from time to time with the number of cycles done. `beginning` is what the cycles follow, if the
    first is not among them.
    """
    is_recorded = policy.policy.name == header.policy
    differing = _differing if is_recorded else _doing_other
    kept = _Last(header)
    asked: list[Snapshot] = []
    followed = [policy.policy.name]

    def watched(bound: BoundPolicy) -> BoundPolicy:
        def decide(snapshot: Snapshot) -> Plan:
            asked[:] = [snapshot]
            try:
                return bound.decide(snapshot)
            except Exception as error:
                if controller.on_policy_error is not None:
                    raise
                what = f"{type(error).__name__}: {error}"
                raise PolicyBrokeError(f"policy '{bound.policy.name}' at {snapshot.now_s:g} s: {what}") from error

        return replace(bound, decide=decide)

    def again(name: str, settings: dict[str, Any]) -> BoundPolicy:
        followed.append(name)
        return watched(bind(name, settings))

    start, first = empty_snapshot(header.nodes, header.seed), watched(policy)
    if beginning is None:
        controller = Controller(
            start, first.decide, first.order, kept, **first.needs, bind=again if is_recorded else None
        )  # fmt: skip
    elif is_recorded and policy.settings == bind(header.policy, header.params).settings:
        controller = begun_at(beginning, header.workload, first, kept, again)
        followed[:] = followed[-1:]
    else:
        controller = begun_at(beginning, header.workload, bind(header.policy, header.params), kept, bind)
        controller.bind, controller.decide = None, first.decide
        controller.state.switch_policy(first.order, **first.needs)
    decisions = reworded = 0
    begun = n = 0 if beginning is None else beginning.number
    for n, recorded in enumerate(cycles, begun + 1):
        asked.clear()
        # It may have raised in the recorded run too.
        controller.on_policy_error = _ignore if recorded.refused else None
        try:
            controller.advance(recorded.at_s, recorded.events)
        except (UnknownPolicy, PolicyError) as error:
            raise JournalError(f"cycle {n:,} at {recorded.at_s:g} s: {error}") from error
        except (LookupError, ValueError, StopIteration) as error:
            raise JournalError(
                f"cycle {n:,} at {recorded.at_s:g} s: its events contradict earlier cycles: {error}"
            ) from error
        now = kept.cycle
        fields = differing(recorded, now)
        if is_recorded and fields and _is_reworded(fields, recorded, now):
            reworded, fields = reworded + 1, ()
        if fields:
            snapshot = asked[0] if asked else controller.snapshot
            difference = Difference(n, recorded.at_s, fields, _side(snapshot, recorded), _side(snapshot, now))
            return Replay(n - begun, decisions, difference, tuple(followed), reworded)
        decisions += recorded.plan is not None
        if n % 256 == 0:
            done(n - begun)
    return Replay(n - begun, decisions, None, tuple(followed), reworded)


def _ignore(_error: Exception) -> None:
    """The exception is in the cycle, and will be compared."""


class _Last:
    """A journal that keeps only the last cycle."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.cycle = Cycle(0.0, ())

    def append(self, cycle: Cycle) -> None:
        """Keep this one."""
        self.cycle = cycle

    def __iter__(self) -> Iterator[Cycle]:
        return iter([self.cycle])


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(Plan)


def encoded(plan: Plan) -> bytes:
    """A plan as the bytes that are in a journal."""
    return _ENCODER.encode(_DECODER.decode(_ENCODER.encode(plan)))


def _differing(recorded: Cycle, now: Cycle) -> tuple[str, ...]:
    """The fields of the plan that differ; empty when the two are the same."""
    one, other = recorded.plan, now.plan
    if one is None or other is None:
        return () if one is other else ("asked",)
    if _ENCODER.encode(one) != _ENCODER.encode(other) and encoded(one) != encoded(other):
        pairs = [(name, getattr(one, name), getattr(other, name)) for name in Plan.__struct_fields__]
        return tuple(name for name, a, b in pairs if _plain(a) != _plain(b))
    return () if recorded.refused == now.refused else ("refused",)


def _is_reworded(fields: tuple[str, ...], recorded: Cycle, now: Cycle) -> bool:
    """Are the two plans equal except for the wording of reasons?"""
    one, other = recorded.plan, now.plan
    if one is None or other is None or not {*fields} <= {"reasons", "refused"}:
        return False
    return one.reasons.keys() == other.reasons.keys() and bool(recorded.refused) == bool(now.refused)


_DEEDS = ("put", "drop", "ends", "checkpoints", "tiers")
_NOTHING = Plan()


def _doing_other(recorded: Cycle, now: Cycle) -> tuple[str, ...]:
    one, other = recorded.plan or _NOTHING, now.plan or _NOTHING
    return tuple(name for name in _DEEDS if _plain(getattr(one, name)) != _plain(getattr(other, name)))


def _plain(value: object) -> bytes:
    return _ENCODER.encode(msgspec.to_builtins(value))


def _side(snapshot: Snapshot, cycle: Cycle) -> DecisionSide:
    plan = cycle.plan
    if plan is None:
        return DecisionSide(False)
    return DecisionSide(True, changes(snapshot, plan), dict(plan.reasons), cycle.refused, plan)
