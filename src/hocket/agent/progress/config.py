"""What a progress configuration may say. Checked when a job is submitted, so that no reader meets anything else."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from importlib import import_module
from math import inf
from typing import Any

KINDS = {
    "stdout": "patterns",
    "json": "file",
    "csv": "file",
    "tensorboard": "folder",
    "report": "",
}  # and their own field
NEEDED = ("csv", "tensorboard")  # need theirs
FOR_ALL = ("kind", "epoch", "epoch_length", "first_epoch")
MOST_PATTERNS = 20
LONGEST_TEXT = 1000  # characters of a pattern or a path

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 80  # characters of a value in a message


def problem(config: dict[str, object]) -> str:
    """What is wrong with it, in one sentence; empty if nothing is."""
    kind = config.get("kind", "stdout")
    if not isinstance(kind, str) or kind not in KINDS:
        return _must("kind", f"one of {', '.join(KINDS)}", kind)
    fields = tuple(dict.fromkeys(field for field in KINDS.values() if field))
    for field in config:
        if field not in (*FOR_ALL, *fields):
            return f"progress.{_shown(field, quoted=False)} is no field{_meant(field, (*FOR_ALL, *fields))}"
        if field in fields and field != KINDS[kind]:
            return f"progress.{field} must be given with another kind than '{kind}', not as {_shown(config[field])}"
    if kind in NEEDED and KINDS[kind] not in config:
        return f"progress.{KINDS[kind]} must be given with kind '{kind}', and is missing"
    for field, (rule, holds) in _RULES.items():
        if field in config and not holds(config[field]):
            return _must(field, rule, config[field])
    return _patterns_problem(config.get("patterns"), str(config.get("epoch", "epoch")))


def _patterns_problem(patterns: object, counter: str) -> str:
    if not isinstance(patterns, list):
        return ""
    names_epoch = False
    for index, text in enumerate(patterns):
        field = f"patterns[{index}]"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError, Warning) as error:
            return _must(field, f"a regular expression ({error})", text)
        if repeats_a_repetition(text):
            return _must(field, "without a repetition in a repetition, unless it is atomic as in (?>(?:a+b)*)", text)
        if not pattern.groupindex:
            return _must(field, f"a pattern with named groups such as (?P<{counter}>\\d+)", text)
        names_epoch = names_epoch or counter in pattern.groupindex or "step" in pattern.groupindex
    rule = f"at least one with the group (?P<{counter}>...) or (?P<step>...)"
    return "" if names_epoch else _must("patterns", rule, patterns)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and "\0" not in value


def _is_name(value: object) -> bool:
    return (
        isinstance(value, str) and len(value) <= 100 and value == value.lower() and _NAME.fullmatch(value) is not None
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def _is_list(value: object) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MOST_PATTERNS and all(_is_text(text) for text in value)


_PATH = f"a path of at most {LONGEST_TEXT} characters"
_RULES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "epoch": ("a name in lower case (letters, digits and _)", _is_name),
    "epoch_length": ("a finite number above 0", _is_count),
    "first_epoch": ("0 or 1", lambda value: value in (0, 1) and type(value) is int),
    "patterns": (f"a list of 1 to {MOST_PATTERNS} texts of at most {LONGEST_TEXT} characters", _is_list),
    "file": (_PATH, _is_text),
    "folder": (_PATH, _is_text),
}


def _must(field: str, rule: str, value: object) -> str:
    return f"progress.{field} must be {rule}, not {_shown(value)}"


def _shown(value: object, quoted: bool = True) -> str:
    text = repr(value) if quoted else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _meant(field: object, fields: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(field), fields, 1)
    return f"; did you mean '{close[0]}'?" if close else f": it must be one of {', '.join(fields)}"


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
