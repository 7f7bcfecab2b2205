"""Tables that grow by a row an epoch: `epoch  train_loss  accuracy  time`, then `0  0.51  0.81  00:12`."""

from __future__ import annotations

import re

from hocket.agent.progress.numbers import number

_BETWEEN = re.compile(rb"[\s|,;]+")
_TITLE = re.compile(rb"[a-z_][a-z0-9_@./%()\-]*")
_EPOCH_CELL = re.compile(rb"(\d{1,12})(?:/\d{1,12})?")


def header(line: bytes, counter: bytes) -> list[str] | None:
    """The columns, if this line (in lower case) is the header of such a table."""
    titles = _cells(line)
    if len(titles) < 2 or titles[0] != counter or not all(_TITLE.fullmatch(title) for title in titles):
        return None
    return [title.decode() for title in titles]


def row(columns: list[str], line: bytes) -> tuple[int, dict[str, float]] | None:
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
