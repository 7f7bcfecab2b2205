"""JSON lines, printed among other things or written to a file: `{"epoch": 3, "loss": 0.4, "val": {"acc": 0.91}}`.

Every object that has the counter or a step counts; nested values come out as `val/acc`.
"""

from __future__ import annotations

import json

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.follow import LAST_LOOKS, Followed
from hocket.agent.progress.lines import Lines
from hocket.agent.progress.metrics import STEPS, Row, number
from hocket.agent.progress.reader import Reader, Report

LONGEST_LINE = 1 << 16  # bytes
MOST_VALUES = 1000  # of one object
DEEPEST = 4


class JsonLines(Reader):
    """Objects on the job's output, or in the files that are followed."""

    def __init__(self, epochs: EpochCounter, counter: str, paths: list[str]) -> None:
        super().__init__(epochs)
        self._count = epochs
        self._counter = counter
        self._keys = [json.dumps(key).encode() for key in dict.fromkeys((counter, *sorted(STEPS)))]
        self._printed = None if paths else Lines(LONGEST_LINE)
        self._files = [(Followed(path), Lines(LONGEST_LINE)) for path in paths]

    def feed(self, data: bytes) -> list[Report]:
        """What objects were printed."""
        return self._read(self._printed.cut(data)) if self._printed else []

    def poll(self) -> list[Report]:
        """What objects were written."""
        return [report for file, lines in self._files for report in self._read(lines.cut(file.read()[0]))]

    def _rest(self) -> list[Report]:
        reports = [report for _look in range(LAST_LOOKS) for report in self.poll()]
        for lines in [self._printed] if self._printed else [lines for _file, lines in self._files]:
            reports += self._read(lines.rest())
        return reports

    def _read(self, text: bytes) -> list[Report]:
        if b"{" not in text:
            return []
        reports: list[Report] = []
        keys = [key for key in self._keys if key in text]
        for line in text.split(b"\n") if keys else ():
            if any(key in line for key in keys):
                reports += self._line(line)
        return reports

    def _line(self, line: bytes) -> list[Report]:
        try:
            found = json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])
        except (ValueError, RecursionError):
            return []
        values: dict[str, float] = {}
        _flatten(found, "", values, DEEPEST)
        return Row(values, self._counter).told_to(self._count)


def _flatten(found: dict[str, object], prefix: str, values: dict[str, float], deeper: int) -> None:
    for key, value in found.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and deeper:
            _flatten(value, f"{name}/", values, deeper - 1)
        elif len(values) < MOST_VALUES and (numeric := _number(value)) is not None:
            values[name] = numeric


def _number(value: object) -> float | None:
    if isinstance(value, str):
        return number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
