"""Times, dates, sizes of memory and numbers of GPUs as people write them: `2h30m`, `8G`, `1-4`."""

from __future__ import annotations

import re
from math import isfinite

_SHOWN = 60  # characters of a value in a message
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?")
_UNITS_S = (86400.0, 3600.0, 60.0, 1.0)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_SPAN = re.compile(r"(\d+)-(\d+)")
GPU_LIMIT = 100_000  # of one job: more is a typing error


class BadValue(ValueError):
    """A value that breaks its rule: `must be RULE, not VALUE`, to be put behind the name of a field."""

    def __init__(self, rule: str, value: object) -> None:
        text = repr(value)
        super().__init__(f"must be {rule}, not {text if len(text) <= _SHOWN else f'{text[: _SHOWN - 1]}…'}")


def seconds(value: object, *, zero: bool = False) -> float:
    """`90`, `90s`, `20m`, `2h30m`, `1d`."""
    rule = f"a time such as 90s, 20m, 2h30m or 1d{'' if zero else ', above 0'}"
    if isinstance(value, str) and (match := _TIME.fullmatch(value.replace(" ", ""))) and any(match.groups()):
        found = sum(float(n) * unit_s for n, unit_s in zip(match.groups(), _UNITS_S, strict=True) if n)
    else:
        found = number(value, rule)
    if found < 0 or (found == 0 and not zero) or not isfinite(found):
        raise BadValue(rule, value)
    return found


_MOMENT = "a time such as 6h, or a date to come such as '2026-11-20 12:00' or 2026-11-20T12:00+01:00"


def seconds_from_now(value: object, now_s: float | None = None) -> float:
    """`6h`, or the time until a date: `2026-11-20 12:00` in local time, or with the offset of another zone."""
    import time
    from datetime import datetime

    moment = value if isinstance(value, datetime) else None  # in a TOML file
    if isinstance(value, str) and value.strip()[4:5] == "-":
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise BadValue(_MOMENT, value) from None
        if len(value.strip()) <= len("2026-11-20"):
            raise BadValue(f"{_MOMENT}, with a time of day", value)
    if moment is None:
        try:
            return seconds(value)
        except BadValue:
            raise BadValue(_MOMENT, value) from None
    try:
        left_s = moment.timestamp() - (time.time() if now_s is None else now_s)
    except (OverflowError, OSError, ValueError):
        raise BadValue(_MOMENT, value) from None
    if left_s <= 0:
        raise BadValue(f"{_MOMENT} (this one is past)", str(value))
    return round(left_s, 3)


def mebibytes(value: object) -> float:
    """`8G`, `512M`, `1.5T`; a bare number is in MiB."""
    rule = "an amount of memory such as 512M or 8G"
    if isinstance(value, str) and (match := _MEMORY.fullmatch(value.strip())):
        return float(match[1]) * _MIB[match[2].upper()]
    found = number(value, rule)
    if found < 0:
        raise BadValue(rule, value)
    return found


def gpu_counts(value: object) -> list[int]:
    """The numbers of GPUs a job may run on: `2`, `1,2,4`, `1-4`, or a list of numbers."""
    rule = "numbers of GPUs such as 2 or 1,2,4 or 1-4"
    words = value if isinstance(value, list) else str(value).split(",") if isinstance(value, str | int) else []
    found: set[int] = set()
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int):
            raise BadValue(rule, value)
        text = str(word).strip()
        span = _SPAN.fullmatch(text)
        if not (span or text.isdecimal()):
            raise BadValue(rule, value)
        low, high = (int(span[1]), int(span[2])) if span else (int(text), int(text))
        if low > high or high > GPU_LIMIT:
            raise BadValue(f"{rule}, ascending and at most {GPU_LIMIT:,}", value)
        found.update(range(low, high + 1))
    if not found or (0 in found and len(found) > 1):
        raise BadValue(f"{rule}; 0 stands alone", value)
    return sorted(found)


def array_count(value: object) -> int:
    """`10`, or `0-9` for the same."""
    from hocket.model.job_spec import ARRAY_LIMIT

    rule = f"a count from 1 to {ARRAY_LIMIT:,}, or a range from 0 such as 0-9"
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    span = _SPAN.fullmatch(text)
    count = int(span[2]) + 1 if span and int(span[1]) == 0 else int(text) if text.isdecimal() else 0
    if not 1 <= count <= ARRAY_LIMIT:
        raise BadValue(rule, value)
    return count


def number(value: object, rule: str = "a number") -> float:
    """A finite number, or a text that is one."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            raise BadValue(rule, value) from None
        if isfinite(found):
            return found
    raise BadValue(rule, value)


def whole(value: object, rule: str = "a whole number") -> int:
    """A whole number, or a text that is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d{1,18}", value.strip(), re.ASCII):
        return int(value)
    raise BadValue(rule, value)
