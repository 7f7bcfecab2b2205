"""How long real starts, pauses, resizes and moves took: from the action to the event that says it is done.

A journal has no actions, so it is folded again with the recorded decisions.
"""

from __future__ import annotations

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Cycle, Header
from hocket.control.state import State
from hocket.model.action import Move, Pause, Resize, Resume, Start
from hocket.model.event import JobFailed, JobMoved, JobPaused, JobResized, JobStarted
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import find
from hocket.reports.summary import quantile

BEGUN: dict[type, str] = {Start: "start", Resume: "start", Pause: "pause", Resize: "resize", Move: "move"}
DONE: dict[type, str] = {JobStarted: "start", JobPaused: "pause", JobResized: "resize", JobMoved: "move"}


class SwitchTimes:
    """Reads the cycles of a journal from the first one on. Raises UnknownPolicy if its policy is not installed."""

    def __init__(self, header: Header, begun: Controller | None = None) -> None:
        """`begun` is the controller where the cycles begin, if that is not with the first."""
        policy = find(header.policy).bound(header.params)
        start = empty_snapshot(header.nodes, header.seed)
        self._controller = begun or Controller(
            start, policy.decide, policy.order, MemoryJournal(header), **policy.needs
        )
        self._begun: dict[tuple[str, str], float] = {}  # (job, kind of change) → when the action was sent
        self.took_s: dict[str, list[float]] = {what: [] for what in DONE.values()}

    @property
    def state(self) -> State:
        """The state after the last cycle."""
        return self._controller.state

    def add(self, cycle: Cycle) -> None:
        """Take in a cycle."""
        for event in cycle.events:
            if isinstance(event, JobFailed):
                for what in DONE.values():
                    self._begun.pop((event.job, what), None)
            elif isinstance(event, JobStarted | JobPaused | JobResized | JobMoved):
                what = DONE[type(event)]
                if (begun_s := self._begun.pop((event.job, what), None)) is not None:
                    self.took_s[what].append(event.at_s - begun_s)
        for action in self._controller.advance(cycle.at_s, cycle.events, cycle):
            if (begins := BEGUN.get(type(action))) is not None:
                self._begun[action.job, begins] = cycle.at_s

    def median_s(self, what: str) -> float | None:
        """The median time of all changes of this kind; None if there were none."""
        return quantile(sorted(self.took_s[what]), 0.5)
