"""Refuses a journal whose numbers cannot be: times that go back, amounts and counts without bound or below 0.

A controller writes no such journal. One that was altered, with checksums to match, must not be calculated with: a
what-if would run for hours, or break somewhere in its statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

import msgspec

from hocket.control.journal import JournalError
from hocket.control.ports import Cycle
from hocket.model.validation import LEAST

_LARGEST = 1e15
_MOST = 10**9  # epochs, steps, sizes and other counts
_LONGEST_S = 100 * 366 * 86400.0  # between the first and the last cycle
_NOT_READ = ("metrics", "params", "memo", "progress", "env")  # what jobs and policies say of themselves
_ASKED = ("job", "node", "owner", "slices")
_MAY_BE_NEGATIVE = ("priority", "seed")


def sound_cycles(name: str, cycles: Iterable[Cycle], first: int = 1) -> Iterator[Cycle]:
    """The same cycles. Raises JournalError, which names the journal, the cycle and the value."""
    first_s = last_s = None
    for number, cycle in enumerate(cycles, first):
        wrong = ""
        if not isfinite(cycle.at_s) or (last_s is not None and cycle.at_s < last_s):
            wrong = f"its time is {cycle.at_s!r}, after {last_s!r}"
        elif first_s is not None and cycle.at_s - first_s > _LONGEST_S:
            wrong = f"its time is {cycle.at_s!r}, over a hundred years after the first"
        first_s, last_s = cycle.at_s if first_s is None else first_s, cycle.at_s
        for event in cycle.events if not wrong else ():
            kind = type(event).__name__
            if not abs(event.at_s - cycle.at_s) <= _LONGEST_S:  # nor if it is NaN
                wrong = f"{kind}: at_s is {event.at_s!r}, and the cycle is of {cycle.at_s!r}"
            wrong = wrong or next((f"{kind}: {each}" for each in _wrong("", msgspec.to_builtins(event))), "")
        for partition in cycle.plan.put if cycle.plan is not None and not wrong else ():
            if any(sum(tenant.replicas) < 1 for tenant in partition.tenants):
                wrong = f"partition '{partition.id}' has a tenant without replicas"
            wrong = wrong or next(_wrong("", msgspec.to_builtins(partition)), "")
        if wrong:
            raise JournalError(f"journal '{name}', cycle {number}: {wrong}")
        yield cycle


def _wrong(field: str, value: Any, is_asked: bool = False) -> Iterator[str]:
    """What cannot be. `is_asked`: it is part of what was asked for, and not measured, so there are no tiny amounts."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name not in _NOT_READ:
                yield from _wrong(str(name), part, is_asked or name in _ASKED)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _wrong(field, part, is_asked)
    elif is_asked and isinstance(value, float) and 0 < abs(value) < LEAST:
        yield f"{field} is {value!r}"
    elif isinstance(value, int) and not isinstance(value, bool):
        is_too_large = abs(value) > _MOST and not field.endswith("_s")
        if is_too_large or (value < 0 and field not in _MAY_BE_NEGATIVE):
            yield f"{field} is {value}"
    elif isinstance(value, float) and not field.startswith("at_") and (not isfinite(value) or abs(value) > _LARGEST):
        yield f"{field} is {value!r}"
