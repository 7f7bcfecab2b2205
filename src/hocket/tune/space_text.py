"""Search spaces as users type them: `rate=loguniform:1e-4,0.1`, or `rate = { loguniform = [1e-4, 0.1] }` in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hocket.tune.space import Choice, Domain, LogUniform, RandInt, SpaceError, Uniform

_KINDS: dict[str, type[Domain]] = {"choice": Choice, "uniform": Uniform, "loguniform": LogUniform, "randint": RandInt}


def space_of_options(options: Sequence[str]) -> dict[str, Domain]:
    """NAME=KIND:VALUE,VALUE, one option a hyperparameter."""
    found: dict[str, Domain] = {}
    for option in options:
        name, equals, rest = option.partition("=")
        kind, colon, values = rest.partition(":")
        if not (name and equals and colon):
            raise SpaceError(f"--space '{option}' must be NAME=KIND:VALUES, as in rate=loguniform:1e-4,0.1")
        if name in found:
            raise SpaceError(f"hyperparameter '{name}' stands twice in --space")
        found[name] = domain(name, kind, [_value(v) for v in values.split(",")] if values else [])
    return found


def space_of_table(table: Mapping[str, Any]) -> dict[str, Domain]:
    """NAME = { KIND = [VALUE, VALUE] }, a line a hyperparameter."""
    found: dict[str, Domain] = {}
    for name, entry in table.items():
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise SpaceError(f"hyperparameter '{name}' must be {{ KIND = [VALUES] }}, not {entry!r}")
        ((kind, values),) = entry.items()
        if not isinstance(values, list):
            raise SpaceError(f"hyperparameter '{name}': {kind} must be a list of values, not {values!r}")
        found[name] = domain(name, kind, values)
    return found


def domain(name: str, kind: str, values: Sequence[Any]) -> Domain:
    """One hyperparameter, checked."""
    if kind not in _KINDS:
        raise SpaceError(f"hyperparameter '{name}': '{kind}' is not one of {', '.join(_KINDS)}")
    if kind == "choice":
        made: Domain = Choice(tuple(values))
    else:
        if len(values) != 2 or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            raise SpaceError(f"hyperparameter '{name}': {kind} needs two numbers, low and high, not {list(values)}")
        made = _KINDS[kind](*values)
    made.check(name)
    return made


def _value(text: str) -> Any:
    """A number, true, false or null as JSON has them; anything else is text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, int | float | bool | None) else text
