"""Progress by the user's own patterns.

Each is searched for in each line. Its group `epoch` (or what the configuration calls the counter) names the epoch; a
pattern without it speaks of the one named last. Its group `step` names a step; of a job that names no epoch, its values
belong to that. Every other named group is a metric; if a `%` follows it, a percentage.
What a pattern finds is the epoch's result, unless the count has a fraction or the line was overwritten; an epoch
without metrics has just begun.
"""

from __future__ import annotations

import re

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.lines import TRANSIENT
from hocket.agent.progress.metrics import number
from hocket.agent.progress.reader import Report
from hocket.agent.progress.stdout import Finder


class Patterns(Finder):
    """Finds what the user said to look for."""

    def __init__(self, epochs: EpochCounter, patterns: list[str], counter: str) -> None:
        super().__init__(epochs)
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._counter = counter

    def epoch_of(self, state: bytes) -> object:
        """The first count that a pattern finds."""
        text = state.decode("utf-8", "replace")
        for pattern in self._patterns:
            if self._counter in pattern.groupindex and (found := pattern.search(text)):
                return found[self._counter]
        return None

    def read(self, text: bytes) -> list[Report]:
        """What whole lines report."""
        reports: list[Report] = []
        for line in text.decode("utf-8", "replace").split("\n"):
            for pattern in self._patterns:
                if found := pattern.search(line.lstrip("\r")):
                    reports += self._found(found, transient=line.startswith(TRANSIENT.decode()))
        return reports

    def _found(self, found: re.Match[str], transient: bool) -> list[Report]:
        numbers = {}
        for name, text in found.groupdict().items():
            percent = "%" if found.string[found.end(name) :].lstrip(" ").startswith("%") else ""
            value = number(text + percent) if text is not None else None
            if value is not None:
                numbers[name] = value
        step = numbers.pop("step", None) if self._counter != "step" else None
        count = numbers.pop(self._counter, self.epochs.current)
        if count is None:
            step = self.epochs.step if step is None and numbers else step
            return [] if step is None else self.epochs.at_step(step, numbers)
        reports = self.epochs.said(count, numbers, within=transient or not numbers)
        return reports if step is None else reports + self.epochs.at_step(step, {})
