"""Named values with rules: reads a CSV row, a TOML table, or options as `PATH?first=100&elastic=yes`.

A reader reads its names and then calls `finish`, which refuses all others. So the known
names are exactly those that are used, and there is no list of them to keep up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import NoReturn, Protocol, TypeVar

from msgspec import Struct

from hocket.model.validation import LEAST
from hocket.workloads.errors import WorkloadError, did_you_mean, shown

T = TypeVar("T")
_YES, _NO = ("yes", "true", "1", ""), ("no", "false", "0")
MAX_LIST = 100_000  # entries of a list in one field

# Up to here a double tells microseconds apart, and the simulator's arithmetic relies on that; 126 years.
MAX_S = 4e9
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([smhd])\s*")


class BrokenRuleError(ValueError):
    """The rule in words, to follow "must be"."""


class Rule(Protocol[T]):
    """How a value is read. Everything raises BrokenRuleError, but `column` may raise any ValueError."""

    @property
    def words(self) -> str: ...

    def of(self, value: object) -> T:
        """From a typed value, as TOML has it."""
        ...

    def of_text(self, text: str) -> T:
        """From a cell or an option."""
        ...

    def column(self, texts: list[str]) -> list[T]:
        """From many cells at once: fast, but it does not say which is wrong."""
        ...


class Whole(Struct, frozen=True):
    """A whole number."""

    low: int = 0
    high: int = 1_000_000

    @property
    def words(self) -> str:
        return f"a whole number from {self.low} up"

    def of(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < self.low:
            raise BrokenRuleError(self.words)
        if value > self.high:
            raise BrokenRuleError(f"{self.words}, at most {self.high}")
        return value

    def of_text(self, text: str) -> int:
        try:
            value = int(_plain_number(text))
        except ValueError:
            raise BrokenRuleError(self.words) from None
        return self.of(value)

    def column(self, texts: list[str]) -> list[int]:
        _plain_number("".join(texts))
        values = list(map(int, texts))
        if values and not (self.low <= min(values) and max(values) <= self.high):
            raise BrokenRuleError(self.words)
        return values


class Number(Struct, frozen=True):
    """A finite number."""

    low: float = 0.0
    above: bool = False  # `low` itself is not allowed
    high: float = 1e15

    @property
    def words(self) -> str:
        return "a finite number " + (f"above {self.low:g}" if self.above else f"from {self.low:g} up")

    def of(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BrokenRuleError(self.words)
        # Compared before it is converted: a whole number may be too large for a float.
        if not (value > self.low if self.above else value >= self.low) or value == inf:
            raise BrokenRuleError(self.words)
        if value > self.high:
            raise BrokenRuleError(f"{self.words}, at most {self.high:g}")
        if 0 < value < LEAST:
            raise BrokenRuleError(f"{self.words}, {'' if self.above else '0 or '}at least {LEAST:g}")
        return float(value)

    def of_text(self, text: str) -> float:
        try:
            value = float(_plain_number(text))
        except ValueError:
            raise BrokenRuleError(self.words) from None
        return self.of(value)

    def column(self, texts: list[str]) -> list[float]:
        _plain_number("".join(texts))
        values = list(map(float, texts))
        if values:
            self.of(min(values))
            self.of(max(values))
            self.of(min(filter(None, values), default=self.high))
            # Comparisons with NaN are False, so `min` and `max` may miss it; a sum does not.
            if not isfinite(sum(values)):
                raise BrokenRuleError(self.words)
        return values


class Seconds(Struct, frozen=True):
    """A time: a number of seconds, or a text with its unit."""

    above: bool = False
    high: float = MAX_S

    @property
    def words(self) -> str:
        span = "above 0" if self.above else "from 0 up"
        return f"a finite number of seconds {span} (or a time such as 90s, 20m, 2h, 1d)"

    def of(self, value: object) -> float:
        if isinstance(value, str):
            match = _DURATION.fullmatch(value)
            if match is None:
                raise BrokenRuleError(self.words)
            value = float(match[1]) * _UNITS_S[match[2]]
        try:
            return Number(above=self.above, high=self.high).of(value)
        except BrokenRuleError as broken:
            words = str(broken).removeprefix(Number(above=self.above).words)
            raise BrokenRuleError(self.words + words) from None

    def of_text(self, text: str) -> float:
        if text.rstrip()[-1:] in _UNITS_S and text.isascii():
            return self.of(text)
        try:
            value = float(_plain_number(text))
        except ValueError:
            raise BrokenRuleError(self.words) from None
        return self.of(value)

    def column(self, texts: list[str]) -> list[float]:
        return Number(above=self.above, high=self.high).column(texts)


class Name(Struct, frozen=True):
    """A job's id: it is used in names of partitions, and on one line of a table."""

    @property
    def words(self) -> str:
        return "1 to 200 printable characters without '/'"

    def of(self, value: object) -> str:
        if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and "/" not in value:
            return value
        raise BrokenRuleError(self.words)

    def of_text(self, text: str) -> str:
        return self.of(text)

    def column(self, texts: list[str]) -> list[str]:
        joined = "".join(texts)
        if not joined.isprintable() or "/" in joined or not all(texts) or len(max(texts, key=len)) > 200:
            raise BrokenRuleError(self.words)
        return texts


class Text(Struct, frozen=True):
    """A label, which may be empty. Equal ones of a column are one object."""

    @property
    def words(self) -> str:
        return "at most 200 printable characters"

    def of(self, value: object) -> str:
        if isinstance(value, str) and len(value) <= 200 and value.isprintable():
            return value
        raise BrokenRuleError(self.words)

    def of_text(self, text: str) -> str:
        return self.of(text)

    def column(self, texts: list[str]) -> list[str]:
        one = {text: text for text in texts}
        for text in one:
            self.of(text)
        return [one[text] for text in texts]


NAME = Name()
TEXT = Text()


def _plain_number(text: str) -> str:
    # Python also accepts 1_000 and digits of every script; in a data file these are errors.
    if "_" in text or not text.isascii():
        raise BrokenRuleError("a plain number")
    return text


class Fields:
    """The fields of one object. Every error begins with `where(name)`: file, line, object."""

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
        self._names_at = names_at  # beginning of errors about the names, if they are on another line than the values
        self._from_text = from_text  # values are cells or options: numbers are spelled out
        self._noun = noun  # what a name is called here: key, column or option
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        self._asked.add(name)
        return self._values.get(name) is not None

    def names(self) -> tuple[str, ...]:
        """All names, for a table in which the user chooses the names."""
        return tuple(self._values)

    def fail(self, name: str, problem: str) -> NoReturn:
        """Raise an error about a field; the problem follows its name."""
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
        """The field by its rule, or None if it is not given."""
        return self.read(name, rule) if name in self else None

    def many(self, name: str, rule: Rule[T], limit: int = MAX_LIST) -> tuple[T, ...]:
        """A list of values, in text separated by semicolons; empty if it is not given."""
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
            each = "entries separated by ';', each" if self._from_text else "a list, each entry"
            self.fail(name, f"must be {each} {broken}, not {shown(value)}")

    def sizes(self, name: str) -> tuple[int, ...]:
        """Ascending sizes; empty if they are not given."""
        found = self.many(name, Whole(low=1), limit=1000)
        if any(b <= a for a, b in pairwise(found)):
            self.fail(name, f"must ascend, each size once, not {shown(list(found))}")
        return found

    def flag(self, name: str) -> bool:
        """Yes or no; no if it is not given."""
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
        """The field without any check; None if it is not given."""
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


def split_options(text: str, where: str) -> tuple[str, Fields]:
    """The text before the last `?`, and the options after it. A bare name is a flag that is set."""
    before, mark, after = text.rpartition("?")
    if not mark:
        return text, Fields({}, lambda _name: where, from_text=True, noun="option")
    values: dict[str, object] = {}
    for part in filter(None, after.split("&")):
        name, _, value = part.partition("=")
        if name in values:
            raise WorkloadError(f"{where}: the option {shown(name)} must be given only once")
        values[name] = value
    return before, Fields(values, lambda _name: where, from_text=True, noun="option")
