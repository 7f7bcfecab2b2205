"""Tables that jobs print: a header, then a row for each epoch or every so many steps. All lines are in lower case.

- **Of epochs**: the first column is the epoch (`epoch  train_loss  valid_loss  accuracy  time`).
- **Of steps**: one column is a step and another is called like a metric (`iter   train loss   remaining time`). Columns
  stand between bars, or two spaces or more apart, so that a title may have spaces. Rows must have as many cells.
- **Of one step**: a name and a value in each row, between lines of dashes (`|    total_timesteps | 2048 |`).
"""

from __future__ import annotations

import re

from hocket.agent.progress.metrics import STEPS, metric_name, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BETWEEN = re.compile(rb"[\s|,;]+")
_TITLE = re.compile(rb"[a-z_][a-z0-9_@./%()\-]*")
_EPOCH_CELL = re.compile(rb"(\d{1,12})(?:/\d{1,12})?")


def table_header(line: bytes, counter: bytes) -> list[str] | None:
    """The columns, if this line (in lower case) is the header of such a table."""
    titles = _cells(line)
    if len(titles) < 2 or titles[0] != counter or not all(_TITLE.fullmatch(title) for title in titles):
        return None
    return [title.decode() for title in titles]


def table_row(columns: list[str], line: bytes) -> tuple[int, dict[str, float]] | None:
    """The epoch and the numbers of a row; None if it is none. What stands behind the last column is left alone."""
    cells = _cells(line)
    epoch = _EPOCH_CELL.fullmatch(cells[0]) if len(cells) >= len(columns) else None
    if epoch is None:
        return None
    values = {
        title: number(cell.decode("ascii", "replace")) for title, cell in zip(columns[1:], cells[1:], strict=False)
    }
    numbers = {title: value for title, value in values.items() if value is not None}
    return (int(epoch[1]), numbers) if numbers else None


def _cells(line: bytes) -> list[bytes]:
    return [cell for cell in _BETWEEN.split(line) if cell]


_WIDE = re.compile(rb"\s{2,}|\t")
_STEP_TITLES = STEPS - {"batch", "batch_idx"} | {"#"}
_MOST_CELLS = 40


class StepTable:
    """The columns of a table of steps."""

    def __init__(self, columns: list[str], step_at: int) -> None:
        self.columns = columns
        self._step_at = step_at

    @property
    def begins_with_numbers(self) -> bool:
        """Whether its rows do."""
        return self._step_at == 0 or self.columns[0] == "e"

    def row(self, line: bytes) -> tuple[int, dict[str, float]] | None:
        """The step and the numbers of a row; None if it is none."""
        cells = _wide_cells(line)
        if len(cells) != len(self.columns) or not cells[self._step_at].isdigit() or len(cells[self._step_at]) > 12:
            return None
        values: dict[str, float] = {}
        for at, (title, cell) in enumerate(zip(self.columns, cells, strict=True)):
            if at != self._step_at and title not in _NO_VALUES and (value := _number(cell)) is not None:
                values[metric_name(title.replace(" ", "_"))] = value
        return (int(cells[self._step_at]), values) if values else None


_NO_VALUES = frozenset({"e", "ts", "time", "total time (s)", "remaining time", "timesteps", "loc", "status", "", "w"})


def step_table(line: bytes, is_metric: Callable[[str], object]) -> StepTable | None:
    """The table of steps that this line is the header of."""
    cells = _wide_cells(line)
    if not 2 <= len(cells) <= _MOST_CELLS or any(cell[:1].isdigit() or b":" in cell for cell in cells):
        return None
    columns = [cell.decode("ascii", "replace") for cell in cells]
    step_at = next((at for at, title in enumerate(columns) if title in _STEP_TITLES), -1)
    if step_at < 0 or not any(is_metric(title.replace(" ", "_")) for title in columns):
        return None
    return StepTable(columns, step_at)


_FIELD = re.compile(rb"\|\s{1,40}+([a-z_][a-z0-9_/]*+)\s*+\|\s{1,40}+([-+.0-9a-z]{1,40}+)\s*+\|\s*+")
_STEP_FIELDS = ("total_timesteps", "timesteps", "total_steps", "steps")


class StepFields:
    """Names and values between two lines of dashes, as they come."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    def line(self, line: bytes) -> tuple[int, dict[str, float]] | None:
        """The step and what is known of it, if this line ends them."""
        if line.startswith(b"---"):
            values, self._values = self._values, {}
            step = next((values[name] for name in _STEP_FIELDS if name in values), None)
            if step is None or not 0 <= step < 1e12:
                return None
            return int(step), {name: value for name, value in values.items() if name not in _STEP_FIELDS}
        found = _FIELD.fullmatch(line)
        if found and len(self._values) < 10 * _MOST_CELLS and (value := _number(found[2])) is not None:
            self._values[found[1].decode()] = value
        return None


def _number(cell: bytes) -> float | None:
    return number(cell.decode("ascii", "replace"))


def _wide_cells(line: bytes) -> list[bytes]:
    line = line.strip()
    if line.startswith(b"|") and line.endswith(b"|") and len(line) > 1:
        return [cell.strip() for cell in line[1:-1].split(b"|")]
    return [cell for cell in _WIDE.split(line) if cell]
