"""What a controller's journal tells of the time since a moment, for processes that run it again.

The archives beside the journal are read too, where that begins before it.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.journal import JournalError, MemoryJournal
from hocket.control.journal.history import CycleHistory, first_cycle, open_history
from hocket.control.ports import Cycle, Header
from hocket.control.restore import again as fold_again
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import bind
from hocket.reports.account import Account, account
from hocket.reports.opening_cycles import begun_controller, opening_cycles
from hocket.reports.sound_journal import sound_cycles
from hocket.reports.whatif import Rebuilt, rebuild


class Past(Struct, frozen=True):
    """A recorded time."""

    header: Header  # with the policy that decided at its beginning
    recorded: Account
    cycles: list[Cycle]
    begun: Controller | None  # before these cycles; None: there is nothing before
    begins_late: int = 0  # the first cycle that is kept, if earlier ones were asked for

    def rebuilt(self) -> Rebuilt:
        """Its workload, to be run again. Raises ValueError if there is none."""
        if not self.recorded.jobs:
            raise ValueError("no job was there in this time: there is nothing to run again")
        return rebuild(self.recorded, self.cycles, self.begun)


def recorded_past(store: str, archives: str, since_s: float | None) -> Past:
    """What is recorded from a time on; None: from the first cycle that is kept. Raises JournalError."""
    history = _history(store, archives, since_s)
    try:
        cycles = sound_cycles(history.name, history, first_cycle(history))
        header, begun, rest = _since(history, list(cycles), since_s)
        first = history.beginning
    finally:
        history.close()
    recorded = account(header, [*(opening_cycles(begun) if begun is not None else []), *rest])
    is_late = first is not None and (since_s is None or first.at_s > since_s)
    return Past(header, recorded, rest, begun, first.number + 1 if first is not None and is_late else 0)


def _history(store: str, archives: str, since_s: float | None) -> CycleHistory:
    """The journal; with its archives if what is asked for begins before it, and they lead up to it."""
    history = open_history(store, archives or None)
    begun = history.beginning
    is_enough = begun is None or (since_s is not None and begun.at_s <= since_s)
    if is_enough or not archives:
        return history
    history.close()
    try:
        return open_history(store, archives, everything=True)
    except JournalError:  # Nothing in the archive leads up to the journal: it is all that is kept.
        return open_history(store, archives)


def _since(
    history: CycleHistory, cycles: list[Cycle], since_s: float | None
) -> tuple[Header, Controller | None, list[Cycle]]:
    """The header and the cycles from a time on, and the controller before them; None: there is nothing before."""
    header, begun = history.header, begun_controller(history)
    before = 0 if since_s is None else next((n for n, c in enumerate(cycles) if c.at_s >= since_s), len(cycles))
    if before:
        if begun is None:
            policy = bind(header.policy, header.params)
            start = empty_snapshot(header.nodes, header.seed)
            begun = Controller(start, policy.decide, policy.order, MemoryJournal(header), **policy.needs, bind=bind)
        for cycle in cycles[:before]:
            fold_again(begun, cycle)
    if begun is not None and (last := begun.policy_set) is not None:
        header = replace(header, policy=last.policy, params=last.params)
    return header, begun, cycles[before:]
