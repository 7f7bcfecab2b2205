"""A CSV table by columns: read fast as a whole; single rows are looked at only for error messages."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from itertools import islice
from typing import TypeVar

from hocket.workloads.errors import WorkloadError, did_you_mean, plain, shown
from hocket.workloads.fields import NAME, BrokenRuleError, Rule
from hocket.workloads.files import read_text

T = TypeVar("T")


class Table:
    """The columns of one file, all of one length. Blank lines do not count."""

    def __init__(self, path: str, text: str, cells: dict[str, list[str]], numbers: Sequence[int] | None = None) -> None:
        self.path = path
        self.cells = cells
        self._text = text
        self._numbers = numbers  # of the rows in the file; None when all are here

    def column(self, name: str, rule: Rule[T]) -> list[T]:
        """One column by its rule."""
        cells = self.cells[name]
        try:
            return rule.column(cells)
        except ValueError:
            return [self._cell(name, rule, n, cell) for n, cell in enumerate(cells)]

    def ids(self, name: str) -> list[str]:
        """A column of distinct job ids."""
        ids = self.column(name, NAME)
        if len(set(ids)) < len(ids):
            first: dict[str, int] = {}
            for n, one in enumerate(ids):
                if (earlier := first.setdefault(one, n)) != n:
                    raise self.repeated(name, one, n, earlier)
        return ids

    def where(self, wanted: Sequence[bool]) -> Table:
        """Only these rows; lines still count in the file."""
        numbers = [n for n, keep in enumerate(wanted) if keep]
        cells = {name: [column[n] for n in numbers] for name, column in self.cells.items()}
        return Table(self.path, self._text, cells, numbers)

    def fail(self, name: str, row: int, problem: str) -> WorkloadError:
        """An error about one cell."""
        return WorkloadError(f"{plain(self.path)} line {self.line(row)}: {name} {problem}")

    def repeated(self, name: str, job_id: str, row: int, earlier: int) -> WorkloadError:
        """An error about an id that is there twice."""
        return self.fail(name, row, f"must be unique, and line {self.line(earlier)} has {shown(job_id)} too")

    def line(self, row: int) -> int:
        """The line on which a row ends. Found by reading the file again, since only errors need it."""
        return self._line(1 + (row if self._numbers is None else self._numbers[row]))

    def header_line(self) -> int:
        """The line on which the names end."""
        return self._line(0)

    def _line(self, number: int) -> int:
        reader = csv.reader(StringIO(self._text, newline=""), strict=True)
        return next(islice((reader.line_num for cells in reader if cells), number, None))

    def _cell(self, name: str, rule: Rule[T], row: int, cell: str) -> T:
        try:
            return rule.of_text(cell)
        except BrokenRuleError as broken:
            value = f"not {shown(cell)}" if cell.strip() else "and is missing"
            raise self.fail(name, row, f"must be {broken}, {value}") from None


def read_table(path: str, required: Sequence[str], rows: int | None = None, text: str | None = None) -> Table:
    """A CSV file with at least these columns; of all rows or only the first ones. `text` is its content, if known."""
    text = read_text(path) if text is None else text
    head = text if rows is None else "\n".join(text.split("\n", rows + 1)[: rows + 1])
    table = Table(path, text, _regular(head) or _by_csv(path, text))
    for name in required:
        if name not in table.cells:
            near = did_you_mean(name, list(table.cells)[:50]).replace("did you mean", "is it")
            raise WorkloadError(f"{plain(path)} line 1: the header must have the column '{name}'{near}")
    if not next(iter(table.cells.values())):
        raise WorkloadError(f"{plain(path)}: the file must have a job after its header")
    if rows is not None:
        table = Table(path, text, {name: column[:rows] for name, column in table.cells.items()})
    return table


def _regular(text: str) -> dict[str, list[str]] | None:
    """The columns of a text without quotes and blank lines whose rows are as long as its header, else None.

    Splitting the whole text at once takes a third of the csv module's time, which makes a list for each row.
    """
    body = "\n" + text.replace("\r\n", "\n").rstrip("\n")
    width = body.partition("\n")[2].partition("\n")[0].count(",") + 1
    if body == "\n" or any(sign in body for sign in ('"', "\r", "\0", "\n\n")):
        return None
    cells = body.replace("\n", ",\n").split(",")[1:]
    rows = body.count("\n")
    # A newline can only be at the start of a cell. So if all of them are in the first column, none is elsewhere.
    first = "".join(cells[::width])
    if len(cells) != rows * width or first.count("\n") != rows:
        return None
    columns = [first[1:].split("\n"), *(cells[n::width] for n in range(1, width))]
    named = {column[0].strip(): column[1:] for column in columns}
    return named if len(named) == width else None


def _by_csv(path: str, text: str) -> dict[str, list[str]]:
    """The columns of any CSV, or what is wrong with it."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for cells in filter(None, reader):
            where = f"{plain(path)} line {reader.line_num}"
            if not header:
                header = [name.strip() for name in cells]
                _check_distinct(header, where)
            elif len(cells) == len(header):
                rows.append(cells)
            else:
                raise WorkloadError(f"{where}: the row must have {len(header)} fields as its header, not {len(cells)}")
    except csv.Error as error:
        where = f"{plain(path)} line {max(reader.line_num, 1)}"
        raise WorkloadError(f"{where}: the line must be CSV, but: {error}") from None
    return {name: [row[n] for row in rows] for n, name in enumerate(header)}


def _check_distinct(header: list[str], where: str) -> None:
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise WorkloadError(f"{where}: the column {shown(name)} must be given only once")
        seen.add(name)
