"""Rebuilds a controller from its journal after a kill, with the recorded decisions; the policy is not called."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.control import saved_state
from hocket.control.controller import Bind, Controller, OnPolicyError
from hocket.control.journal import JournalError
from hocket.control.ports import Beginning, Cycle, DurableJournal, Header, Journal
from hocket.model.event import NodeJoined
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy


def restore(
    journal: DurableJournal, policy: BoundPolicy, on_policy_error: OnPolicyError | None = None, bind: Bind | None = None
) -> Controller:
    """The controller after the last cycle of its journal, which began with this policy; it appends to the same journal.

    With `on_policy_error` an exception of the policy does not end the controller from then on.
    """
    return restore_and_count(journal, policy, on_policy_error, bind)[0]


def restore_and_count(
    journal: DurableJournal, policy: BoundPolicy, on_policy_error: OnPolicyError | None = None, bind: Bind | None = None
) -> tuple[Controller, int]:
    """The controller that `restore` gives, and how many cycles were folded.

    It starts from the newest saved state that can be read, and repeats the later cycles as recorded: their events are
    folded, their plans committed and their actions recorded as begun. The caller asks the executors which of these
    actions took place.
    """
    last = journal.recover()
    controller, begun = _begun(journal, policy, last, bind)
    controller.next_timer_s()  # as the first controller did after the cycle with which the state was saved
    number = begun
    for number, cycle in enumerate(journal.after(begun), begun + 1):
        try:
            again(controller, cycle)
        except (UnknownPolicy, PolicyError) as error:
            raise JournalError(f"journal '{journal.name}', cycle {number:,} at {cycle.at_s:g} s: {error}") from error
        except (AssertionError, LookupError, ValueError, StopIteration) as error:
            raise JournalError(
                f"journal '{journal.name}', cycle {number:,} at {cycle.at_s:g} s: "
                f"it contradicts earlier cycles: {error}"
            ) from error
    if number < last:
        raise JournalError(f"journal '{journal.name}': cycle {number + 1} existed before and cannot be read now")
    controller.journal, controller.on_policy_error = journal, on_policy_error
    return controller, last - begun


def again(controller: Controller, cycle: Cycle) -> None:
    """Repeat one recorded cycle, and all that its controller did around it."""
    controller.timers.pop_due(cycle.at_s, ())  # That they were due is among the events.
    for event in cycle.events:
        if isinstance(event, NodeJoined):
            controller.grow_cluster(event)
    controller.advance(cycle.at_s, cycle.events, cycle)
    controller.next_timer_s()  # drops timers that are outdated


def _begun(journal: DurableJournal, policy: BoundPolicy, last: int, bind: Bind | None) -> tuple[Controller, int]:
    """A controller from the newest saved state that can be read, or from the beginning, and its cycle's number."""
    unwritten = Unwritten(journal.header)
    beginning = journal.beginning()
    for number, state in journal.saved():
        if beginning is not None and number < beginning.number:
            continue  # The cycles that follow it were removed.
        if number > last:
            raise JournalError(
                f"journal '{journal.name}': a state was saved after cycle {number}, and its last cycle is {last}"
            )
        try:
            return saved_state.decode(state, policy, unwritten, bind), number
        except saved_state.UnreadableState:
            continue
    if beginning is not None:
        return begun_at(beginning, journal.name, policy, unwritten, bind), beginning.number
    start = empty_snapshot(journal.header.nodes, journal.header.seed)
    return Controller(start, policy.decide, policy.order, unwritten, **policy.needs, bind=bind), 0


def begun_at(beginning: Beginning, name: str, policy: BoundPolicy, journal: Journal, bind: Bind | None) -> Controller:
    """A controller at the beginning of a journal of this name whose first cycles were removed. Raises JournalError."""
    try:
        return saved_state.decode(beginning.state, policy, journal, bind, any_version=True)
    except saved_state.UnreadableState as error:
        raise JournalError(
            f"journal '{name}' begins after cycle {beginning.number:,}, and the state there, which hocket "
            f"{beginning.version or '?'} wrote, cannot be read: {error}"
        ) from error


class Unwritten:
    """A journal for cycles that are recorded already."""

    def __init__(self, header: Header) -> None:
        self.header = header

    def append(self, cycle: Cycle) -> None:
        """Nothing to do: it is stored already."""

    def __iter__(self) -> Iterator[Cycle]:
        return iter(())
