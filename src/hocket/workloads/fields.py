"""Named values with rules: a CSV row, a TOML table or the options of a spec, read in one way.

A reader reads the names it knows and then calls `finish`, which refuses all others. So the known
names are exactly those that have a meaning, and no list of them can go stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NoReturn, TypeVar

from hocket.workloads.errors import WorkloadError, did_you_mean, shown
from hocket.workloads.rules import BrokenRuleError, Rule, Whole

T = TypeVar("T")
_YES, _NO = ("yes", "true", "1", ""), ("no", "false", "0")
MAX_LIST = 100_000  # entries of a list in one field


class Fields:
    """The fields of one object. `where(name)` begins every error: file, line, object."""

    __slots__ = ("_asked", "_from_text", "_names_at", "_noun", "_values", "_where")

    def __init__(
        self,
        values: Mapping[str, object],
        where: Callable[[str], str],
        *,
        from_text: bool = False,
        noun: str = "key",
        names_at: Callable[[], str] | None = None,
    ) -> None:
        self._values = values
        self._where = where
        self._names_at = names_at  # begins errors about names themselves, if they stand elsewhere than the values
        self._from_text = from_text  # values are cells or options: numbers are spelled out
        self._noun = noun  # what a name is called here: key, column or option
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        self._asked.add(name)
        return self._values.get(name) is not None

    def names(self) -> tuple[str, ...]:
        """All names, for a table whose names are the user's own."""
        return tuple(self._values)

    def fail(self, name: str, problem: str) -> NoReturn:
        """Refuse a field; the problem follows its name."""
        raise WorkloadError(f"{self._where(name)}: {name} {problem}")

    def read(self, name: str, rule: Rule[T], default: T | None = None) -> T:
        """The field by its rule; required when there is no default."""
        self._asked.add(name)
        value = self._values.get(name)
        if value is None:
            if default is None:
                self.fail(name, f"must be {rule.words}, and is missing")
            return default
        try:
            if self._from_text and isinstance(value, str):
                return rule.of_text(value)
            return rule.of(value)
        except BrokenRuleError as broken:
            self.fail(name, f"must be {broken}, not {shown(value)}")

    def maybe(self, name: str, rule: Rule[T]) -> T | None:
        """The field by its rule, or None where it is not given."""
        return self.read(name, rule) if name in self else None

    def many(self, name: str, rule: Rule[T], limit: int = MAX_LIST) -> tuple[T, ...]:
        """A list of values, in text parted by semicolons; empty where it is not given."""
        if name not in self:
            return ()
        value = self._values[name]
        entries: Sequence[object]
        if self._from_text and isinstance(value, str):
            entries = value.split(";")
        elif isinstance(value, list):
            entries = value
        else:
            self.fail(name, f"must be a list, not {shown(value)}")
        if len(entries) > limit:
            self.fail(name, f"must have at most {limit} entries, not {len(entries)}")
        try:
            return tuple(rule.of_text(e) if self._from_text and isinstance(e, str) else rule.of(e) for e in entries)
        except BrokenRuleError as broken:
            each = "entries parted by ';', each" if self._from_text else "a list, each entry"
            self.fail(name, f"must be {each} {broken}, not {shown(value)}")

    def sizes(self, name: str) -> tuple[int, ...]:
        """Ascending sizes; empty where they are not given."""
        found = self.many(name, Whole(low=1), limit=1000)
        if any(b <= a for a, b in pairwise(found)):
            self.fail(name, f"must ascend, each size once, not {shown(list(found))}")
        return found

    def flag(self, name: str) -> bool:
        """Yes or no; no where it is not given."""
        if name not in self:
            return False
        value = self._values[name]
        if isinstance(value, bool):
            return value
        known = (*_YES, *_NO) if self._from_text else ()
        if not isinstance(value, str) or value.lower() not in known:
            words = "yes or no" if self._from_text else "true or false"
            self.fail(name, f"must be {words}, not {shown(value)}")
        return value.lower() in _YES

    def choice(self, name: str, known: Iterable[str], default: str | None = None) -> str:
        """One of some words; required when there is no default."""
        if name not in self and default is not None:
            return default
        value = self._values.get(name)
        words = tuple(known)
        if not isinstance(value, str) or value not in words:
            listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
            self.fail(name, f"must be {listed}, {'and is missing' if value is None else f'not {shown(value)}'}")
        return value

    def raw(self, name: str) -> object:
        """The field as it is, None where it is not given, for the caller to judge."""
        return self._values.get(name) if name in self else None

    def table(self, name: str) -> Fields | None:
        """A table within this one; None where it is not given."""
        if name not in self:
            return None
        value = self._values[name]
        if not isinstance(value, dict):
            self.fail(name, f"must be a table, not {shown(value)}")
        return Fields(value, lambda _inner: f"{self._where(name)}: {name}")

    def tables(self, name: str) -> list[Fields]:
        """A list of tables within this one; empty where it is not given."""
        if name not in self:
            return []
        value = self._values[name]
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            self.fail(name, f"must be a list of tables, not {shown(value)}")

        def place(number: int) -> Callable[[str], str]:
            return lambda _inner: f"{self._where(name)}: {name} number {number}"

        return [Fields(v, place(n)) for n, v in enumerate(value, 1)]

    def finish(self) -> None:
        """Refuse names that were never read."""
        for name in self._values:
            if name not in self._asked:
                hint = did_you_mean(name, self._asked)
                where = self._where(name) if self._names_at is None else self._names_at()
                raise WorkloadError(f"{where}: unknown {self._noun} {shown(name)}{hint}")
