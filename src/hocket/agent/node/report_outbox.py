"""What the controller has still to hear, of all runs: when it is due, and how much of it goes into one call."""

from __future__ import annotations

import threading
import time

from msgspec import Struct, structs

from hocket.agent.node.known_run import KnownRun, RunReports
from hocket.agent.protocol import Report, RunKey

_NEVER = float("inf")
_LAZY_S = 2.0  # what is not urgent is said together with others, or after so long
_MOST_REPORTS, _MOST_OF_ONE = 1000, 250  # in one call


class ReportBatch(Struct, frozen=True):
    """What to say in one call."""

    parts: tuple[RunReports, ...]
    own: tuple[Report, ...]

    def reports(self) -> list[Report]:
        """In the order in which they happened, for each run."""
        return [*self.own, *(report for part in self.parts for report in part.reports)]


class ReportOutbox:
    """The files of the runs are the buffer: here stands only which of them to look at. Under the lock of `Runs`."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._runs: dict[KnownRun, None] = {}  # the longest unsaid first
        self._own: dict[RunKey, Report] = {}  # of the agent itself, on runs that have no folder or no sidecar
        self._measured: dict[RunKey, Report] = {}  # the last phases that a run has measured
        self._due_s = _NEVER
        self._most_reports = _MOST_REPORTS

    def keys(self) -> set[RunKey]:
        """The runs that the agent itself has something to say of."""
        return set(self._own)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be said."""
        return not self._own and not self._measured and not any(run.unacknowledged(1) is not None for run in self._runs)

    def add(self, run: KnownRun, urgent: bool = True) -> None:
        """A run may have something to be said."""
        self._runs[run] = None
        self._make_due(0.0 if urgent else _LAZY_S)

    def say(self, report: Report) -> None:
        """The agent itself has something to say."""
        self._own[report.run] = structs.replace(report)  # Another one, should the same be on its way just now.
        self._make_due(0.0)

    def say_measured(self, report: Report) -> None:
        """What a run has measured; it replaces what was not said yet, and can wait."""
        self._measured[report.run] = report
        self._make_due(_LAZY_S)

    def drop(self, run: KnownRun) -> None:
        """Nothing of this run."""
        self._runs.pop(run, None)

    def drop_own(self, key: RunKey) -> None:
        """What the agent had to say of a run no longer holds."""
        self._own.pop(key, None)
        self._measured.pop(key, None)

    def next_batch(self) -> ReportBatch:
        """Wait until something is due; it stays here until it is `heard`."""
        while True:
            wait_s = self._due_s - time.monotonic()
            if wait_s > 0:
                self._changed.wait(None if wait_s == _NEVER else wait_s)
                continue
            self._due_s = _NEVER
            batch = self._gather()
            if batch.parts or batch.own:
                return batch

    def _gather(self) -> ReportBatch:
        own = (*self._own.values(), *self._measured.values())[: self._most_reports]
        parts, room = [], self._most_reports - len(own)
        for run in list(self._runs):
            if room <= 0:
                break
            part = run.unacknowledged(min(room, _MOST_OF_ONE))
            del self._runs[run]
            if part is not None:
                self._runs[run] = None  # at the end, lest one that says much keep others waiting
                parts.append(part)
                room -= len(part.reports)
        return ReportBatch(tuple(parts), own)

    def acknowledged(self, batch: ReportBatch) -> None:
        """The controller has written them down."""
        for part in batch.parts:
            part.run.acknowledged(part)
            if part.run.cursor.over:
                self.drop(part.run)
        for report in batch.own:
            for unsaid in (self._own, self._measured):
                if unsaid.get(report.run) is report:
                    del unsaid[report.run]
        self._most_reports = min(self._most_reports * 2, _MOST_REPORTS)
        self.not_delivered()

    def not_delivered(self) -> None:
        """What is here is due, or due again."""
        if self._runs or self._own or self._measured:
            self._make_due(0.0)

    def rejected(self, batch: ReportBatch) -> Report | None:
        """The controller cannot read them: next time fewer. A single one that it cannot read is given up."""
        reports = batch.reports()
        if len(reports) == 1:
            self.acknowledged(batch)
            return reports[0]
        self._most_reports = max(len(reports) // 2, 1)
        self.not_delivered()
        return None

    def _make_due(self, after_s: float) -> None:
        due_s = time.monotonic() + after_s
        if due_s < self._due_s:
            self._due_s = due_s
            self._changed.notify_all()
