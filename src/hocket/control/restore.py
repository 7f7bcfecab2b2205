"""After a kill: the controller as its journal has it, decided as it was, without asking the policy."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.control import saved_state
from hocket.control.controller import Bind, Controller, OnPolicyError
from hocket.control.cycle_log import log_restored
from hocket.control.journal import JournalError
from hocket.control.ports import Cycle, DurableJournal
from hocket.model.event import NodeJoined
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy


def restore(
    journal: DurableJournal, policy: BoundPolicy, on_policy_error: OnPolicyError | None = None, bind: Bind | None = None
) -> Controller:
    """The controller after the last cycle of its journal, which began with this policy, and goes on to append to it.

    It begins with the newest saved state that can be read, and does the cycles after it again as they were recorded:
    their facts are folded, their plans committed and their actions written down as begun. The caller asks the executors
    what of that is true. With `on_policy_error` a policy that raises does not end the controller from then on.
    """
    last = journal.recover()
    controller, begun = _begun(journal, policy, last, bind)
    controller.next_timer_s()  # as its first self did after the cycle with which the state was saved
    number = begun
    for number, cycle in enumerate(journal.after(begun), begun + 1):
        try:
            again(controller, cycle)
        except (UnknownPolicy, PolicyError) as error:
            raise JournalError(f"journal '{journal.name}', cycle {number:,} at {cycle.at_s:g} s: {error}") from error
        except (AssertionError, LookupError, ValueError, StopIteration) as error:
            raise JournalError(
                f"journal '{journal.name}', cycle {number:,} at {cycle.at_s:g} s: "
                f"it contradicts what went before: {error}"
            ) from error
    if number < last:
        raise JournalError(f"journal '{journal.name}': cycle {number + 1} was there, and cannot be read any more")
    controller.journal, controller.on_policy_error = journal, on_policy_error
    log_restored(last, last - begun)
    return controller


def again(controller: Controller, cycle: Cycle) -> None:
    """One recorded cycle once more, and all that its controller did around it."""
    controller.timers.pop_due(cycle.at_s)  # The fact that they came is among the events.
    for event in cycle.events:
        if isinstance(event, NodeJoined):
            controller.grow_cluster(event)
    controller.advance(cycle.at_s, cycle.events, cycle)
    controller.next_timer_s()  # drops timers that are outdated


def _begun(journal: DurableJournal, policy: BoundPolicy, last: int, bind: Bind | None) -> tuple[Controller, int]:
    """A controller from the newest saved state that can be read, or from the beginning, and its cycle's number."""
    unwritten = _Unwritten(journal)
    for number, state in journal.saved():
        if number > last:
            raise JournalError(
                f"journal '{journal.name}': a state was saved after cycle {number}, and its last cycle is {last}"
            )
        try:
            return saved_state.decode(state, policy, unwritten, bind), number
        except saved_state.UnreadableState:
            continue
    start = empty_snapshot(journal.header.nodes, journal.header.seed)
    return Controller(start, policy.decide, policy.order, unwritten, **policy.needs, bind=bind), 0


class _Unwritten:
    """A journal for cycles that are recorded already."""

    def __init__(self, journal: DurableJournal) -> None:
        self.header = journal.header

    def append(self, cycle: Cycle) -> None:
        """It is there."""

    def __iter__(self) -> Iterator[Cycle]:
        return iter(())
