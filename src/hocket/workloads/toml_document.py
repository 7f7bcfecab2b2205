"""A TOML file as fields, with line numbers where they can be found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hocket.workloads.errors import WorkloadError, plain, shown
from hocket.workloads.fields import Fields
from hocket.workloads.files import read_text

_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")


class TomlDocument:
    """One file. `root` and `tables` begin every error with file, line and object."""

    def __init__(self, path: str, text: str, values: dict[str, object]) -> None:
        self.path = path
        self._lines = text.split("\n")
        self._values = values
        self.root = Fields(values, self._root_place)

    def table(self, name: str) -> Fields | None:
        """The table [name], if there is one."""
        value = self._values.get(name)
        if self.root.table(name) is None or not isinstance(value, dict):
            return None
        return Fields(value, lambda field: f"{self._place(name, field, 0, 1)}: [{name}]")

    def tables(self, name: str, noun: str) -> list[Fields]:
        """The tables [[name]], each called by its noun and id, or by its number."""
        self.root.tables(name)  # an error unless it is a list of tables
        value = self._values.get(name)
        tables = value if isinstance(value, list) else []

        def place(n: int, called: str) -> Callable[[str], str]:
            return lambda field: f"{self._place(name, field, n, len(tables))}: {called}"

        return [Fields(t, place(n, _called(noun, n, t))) for n, t in enumerate(tables)]

    def _root_place(self, field: str) -> str:
        for n, line in enumerate(self._lines, 1):
            header = _HEADER.match(line)
            if _sets(line, field) or (header is not None and header[2].split(".")[0] == field):
                return f"{plain(self.path)} line {n}"
            if header is not None and header[2].split(".")[0] not in self._values:
                break  # A line of a multi-line text looks like a header: no line after it is reliable.
        return plain(self.path)

    def _place(self, table: str, field: str, index: int, count: int) -> str:
        """The TOML parser gives no lines, so headers are counted; if the count is wrong, no line is given."""
        starts = [n for n, name in self._headers() if name == table]
        if len(starts) != count:
            return plain(self.path)
        start = starts[index]
        following = (n for n, _name in self._headers() if n > start)
        end = next(following, len(self._lines))
        found = (n for n in range(start + 1, end) if _sets(self._lines[n], field))
        return f"{plain(self.path)} line {next(found, start) + 1}"

    def _headers(self) -> Iterator[tuple[int, str]]:
        for n, line in enumerate(self._lines):
            if header := _HEADER.match(line):
                yield n, header[2]


def read_toml(path: str) -> TomlDocument:
    """The file as a document."""
    import tomllib

    text = read_text(path)
    try:
        return TomlDocument(path, text, tomllib.loads(text))
    except RecursionError:
        raise WorkloadError(f"{plain(path)}: the file must be TOML, but is nested too deeply") from None
    except ValueError as error:  # also for numbers and dates that Python refuses
        problem, _, rest = str(error).rpartition(" (at line ")
        line, _, column = rest.rstrip(")").partition(", column ")
        if problem and line.isdigit() and column.isdigit():
            raise WorkloadError(
                f"{plain(path)} line {line}: the file must be TOML, but at column {column}: {problem}"
            ) from None
        raise WorkloadError(f"{plain(path)}: the file must be TOML, but: {error}") from None


def _called(noun: str, index: int, values: object) -> str:
    name = values.get("id") if isinstance(values, dict) else None
    return f"{noun} {shown(name)}" if isinstance(name, str) else f"{noun} number {index + 1}"


def _sets(line: str, field: str) -> bool:
    name, equals, _ = line.partition("=")
    return bool(equals) and name.strip().strip("\"'") == field
