"""Patterns that may take for ever: where a repetition is repeated, a near miss is tried in countless ways."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FEW = 16  # repetitions that are none


def repeats_a_repetition(pattern: str) -> bool:
    """Whether a valid pattern does, in a way that can give back what it took."""
    return _repeats(import_module("re._parser").parse(pattern), within=False)


def _repeats(parts: Any, within: bool) -> bool:
    """`parts` are pairs of what to do and its arguments, some of which are parts again."""
    for what, arguments in parts:
        match str(what):
            case "MAX_REPEAT" | "MIN_REPEAT":
                _least, most, body = arguments
                if most > _FEW and within:
                    return True
                bodies = [(body, within or most > _FEW)]
            case "POSSESSIVE_REPEAT":
                bodies = [(arguments[2], False)]
            case "ATOMIC_GROUP":
                bodies = [(arguments, False)]
            case "SUBPATTERN":
                bodies = [(arguments[-1], within)]
            case "BRANCH":
                bodies = [(body, within) for body in arguments[1]]
            case "ASSERT" | "ASSERT_NOT":
                bodies = [(arguments[1], within)]
            case "GROUPREF_EXISTS":
                bodies = [(body, within) for body in arguments[1:] if body is not None]
            case _:
                bodies = []
        if any(_repeats(body, inside) for body, inside in bodies):
            return True
    return False
