"""A CSV file that grows by rows: a header with the counter, or a step, and metrics, then numbers.

The header may come again, with other columns too: scripts write it whenever they start.
"""

from __future__ import annotations

import csv

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.follow import LAST_LOOKS, Followed
from hocket.agent.progress.lines import Lines
from hocket.agent.progress.metrics import STEPS, Row, number
from hocket.agent.progress.reader import Reader, Report

LONGEST_LINE = 1 << 16  # bytes
_DELIMITERS = ",;\t"


class CsvFiles(Reader):
    """Rows of the files that are followed."""

    def __init__(self, epochs: EpochCounter, counter: str, paths: list[str]) -> None:
        super().__init__(epochs)
        self._count = epochs
        self._files = [_CsvFile(path, counter) for path in paths]

    def poll(self) -> list[Report]:
        """What rows were added."""
        return [report for file in self._files for row in file.rows() for report in row.told_to(self._count)]

    def _rest(self) -> list[Report]:
        return [report for _look in range(LAST_LOOKS) for report in self.poll()]


class _CsvFile:
    def __init__(self, path: str, counter: str) -> None:
        self._counter = counter
        self._counters = STEPS | {counter}
        self._file = Followed(path)
        self._lines = Lines(LONGEST_LINE)
        self._columns: list[str] = []
        self._delimiter = ","
        for line in self._file.head(LONGEST_LINE).split(b"\n"):
            if self._is_header(line.decode("utf-8", "replace")):
                break

    def rows(self) -> list[Row]:
        """What was added, as far as its lines are whole."""
        added, is_beginning = self._file.read()
        if is_beginning:
            self._lines, self._columns = Lines(LONGEST_LINE), []
        rows = []
        for line in self._lines.cut(added).decode("utf-8", "replace").split("\n"):
            if line.strip() and not self._is_header(line) and self._columns:
                cells = zip(self._columns, _cells(line, self._delimiter), strict=False)
                values = {column: value for column, cell in cells if (value := number(cell)) is not None}
                rows.append(Row(values, self._counter))
        return rows

    def _is_header(self, line: str) -> bool:
        if not any(counter in line.lower() for counter in self._counters):
            return False
        delimiter = max(_DELIMITERS, key=line.count)
        titles = [title.strip().lstrip("\ufeff") for title in _cells(line, delimiter)]
        if self._counters.isdisjoint(title.lower() for title in titles):
            return False
        self._columns, self._delimiter = titles, delimiter
        return True


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a NUL byte, or a quote that never ends
        return []
