"""When to save the state, so that a restore never folds much and saving never costs much."""

from __future__ import annotations

from math import inf

from hocket.control import saved
from hocket.control.controller import Controller
from hocket.control.journal import JournalError, JournalLost
from hocket.control.ports import Store
from hocket.policies.registry import BoundPolicy

_EVENTS = 10_000  # since the last saved state, at least
_EVENTS_PER_JOB = 2  # … and for each live job, for what saving costs grows with those


class Saver:
    """Saves a controller's state into its journal every so many events."""

    def __init__(self, journal: Store, policy: BoundPolicy, events: int = _EVENTS) -> None:
        self.trouble = ""  # why the last attempt failed; nothing is lost by that but time, at the next restore
        self._journal, self._policy, self._events = journal, policy, events
        # How many events its last state lies back, a journal does not say: one that goes on saves with its first cycle.
        self._since = inf if len(journal) else 0.0

    def cycled(self, controller: Controller, events: int) -> bool:
        """Tell it of a cycle that took in so many events, and is in the journal. True if the state was saved."""
        self._since += events
        if self._since < max(self._events, _EVENTS_PER_JOB * len(controller.state.jobs.live)):
            return False
        self._since = 0.0
        try:
            self._journal.save(saved.encode(controller, self._policy))
        except JournalLost:
            raise
        except JournalError as error:
            self.trouble = str(error)
            return False
        self.trouble = ""
        return True
