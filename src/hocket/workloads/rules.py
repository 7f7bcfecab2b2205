"""What a number or a name must be like, as a value: read one cell, or a whole column at once."""

from __future__ import annotations

import re
from math import inf, isfinite
from typing import Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")

# Up to here a double tells microseconds apart, and the simulator's arithmetic relies on that; 126 years.
MAX_S = 4e9
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([smhd])\s*")


class BrokenRuleError(ValueError):
    """The rule in words, to stand after "must be"."""


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
            # NaN compares as it likes, so `min` and `max` may miss it; a sum does not.
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
    """A job's id: it stands in partitions' names, and on one line of a table."""

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
    # Python also takes 1_000 and digits of every script; a data file that has them is broken.
    if "_" in text or not text.isascii():
        raise BrokenRuleError("a plain number")
    return text
