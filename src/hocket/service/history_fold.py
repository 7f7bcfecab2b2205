"""A controller and its catalogue, folded from recorded cycles: the state as it was after each of them."""

from __future__ import annotations

from typing import Any

from hocket import __version__
from hocket.control import saved_state
from hocket.control.controller import Controller
from hocket.control.journal import JournalError
from hocket.control.ports import Beginning, Cycle, Header
from hocket.control.restore import Unwritten, again, begun_at
from hocket.model.snapshot import empty_snapshot
from hocket.model.view import JobView
from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy, bind
from hocket.service.catalogue import Catalogue
from hocket.service.kept_jobs import encode_jobs
from hocket.service.policy_guard import guarded


class HistoryFold:
    """The state after the cycle of this number; no policy is asked, and nothing is written."""

    def __init__(self, header: Header, name: str, beginning: Beginning | None = None) -> None:
        """Begin before cycle 1, or at `beginning`; `name` is that of the journal. Raises JournalError."""
        self._name = name
        self.policy_name = header.policy  # with which the journal begins
        self.number = 0 if beginning is None else beginning.number
        self.at_s = 0.0 if beginning is None else beginning.at_s
        try:
            self._policy = _bind(header.policy, header.params)
        except (UnknownPolicy, PolicyError) as error:
            raise JournalError(f"journal '{name}': {error}") from error
        policy, unwritten = self._policy, Unwritten(header)
        if beginning is None:
            start = empty_snapshot(header.nodes, header.seed)
            self.controller = Controller(start, policy.decide, policy.order, unwritten, **policy.needs, bind=_bind)
            self.catalogue = Catalogue()
        else:
            self.controller = begun_at(beginning, name, policy, unwritten, _bind)
            self.catalogue = Catalogue.begun_at(beginning, name)
        self.controller.next_timer_s()  # as the first controller did after the cycle with which the state was saved

    def fold(self, number: int, cycle: Cycle) -> None:
        """Take in the next cycle. Raises JournalError."""
        live = self.controller.state.jobs.live
        before: dict[str, JobView] = {}
        for event in cycle.events:
            job: Any = getattr(event, "job", None)
            if type(job) is str and job in live:
                before[job] = live[job]
        try:
            again(self.controller, cycle)
        except (UnknownPolicy, PolicyError) as error:
            raise JournalError(f"journal '{self._name}', cycle {number:,}: {error}") from error
        except (AssertionError, LookupError, ValueError, StopIteration) as error:
            raise JournalError(
                f"journal '{self._name}', cycle {number:,}: it contradicts earlier cycles: {error}"
            ) from error
        changed = self.catalogue.add_cycle(cycle)
        self.catalogue.update_from_state(cycle, changed, self.controller.state.jobs.live, before)
        self.number, self.at_s = number, cycle.at_s

    def beginning(self) -> Beginning:
        """All that later cycles need of those until now."""
        state = saved_state.encode(self.controller, self._policy)
        return Beginning(self.number, self.at_s, state, encode_jobs(self.catalogue.kept()), __version__)


def _bind(name: str, settings: dict[str, Any]) -> BoundPolicy:
    return guarded(bind(name, settings), lambda _error: None)
