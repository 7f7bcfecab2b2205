"""What is wrong with a value that was given from outside: field, rule and value in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_PATH = re.compile(r"^(?P<rule>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]*)`(?P<bound>.*?)(?:, got .*)?", re.DOTALL)
_BOUND = re.compile(r"(?P<length> of length)? ?(?P<relation>[<>]?=?) ?(?P<limit>-?[\d.e+]+)")
_FIELD = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>[^`]*)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
LEAST = 1e-9  # of an amount that is not 0: what is divided by a smaller one may be infinite
_CLOSING = '"]}'
_RANGES = {">=": " from {} up", ">": " above {}", "<=": " up to {}", "<": " below {}", "": " {}"}
_LENGTHS = {
    ">=": " of at least {}",
    ">": " of more than {}",
    "<=": " of at most {}",
    "<": " of fewer than {}",
    "": " of {}",
}


def too_small(given: Mapping[str, Any]) -> str:
    """The first amount among these that is neither 0 nor at least `LEAST`, with the rule; empty if there is none."""
    for name, value in given.items():
        if isinstance(value, float) and 0 < abs(value) < LEAST:
            return f"{name}: expected 0 or a number from {LEAST:g} up, not {value!r}"
    return ""


def shown(value: Any) -> str:
    """A value as an error names it: JSON, and not too much of it."""
    text = msgspec.json.encode(value).decode()
    if len(text) <= 60:
        return text
    return f"{text[:57]}…{text[-1] if text[-1] in _CLOSING else ''}"


def explained(error: msgspec.ValidationError, given: Any, known: Iterable[str] = ()) -> str:
    """msgspec's message as field, rule and value, without Python's names of types.

    `given` is what it could not convert; `known` are the fields there are, of which one may have been meant.
    """
    found = _PATH.match(str(error))
    assert found is not None
    path, value, is_found = found["path"] or "", given, True
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            is_found = False
    where = f"{path}: " if path else ""
    if field := _FIELD.fullmatch(found["rule"]):
        return where + _of_field(field["what"], field["name"], () if path else known)
    if (expected := _EXPECTED.fullmatch(found["rule"])) is None:
        return where + found["rule"][:1].lower() + found["rule"][1:].replace("`", "'")
    rule = f"{where}expected {_in_words(expected['kinds'], expected['bound'])}"
    return f"{rule}, not {shown(value)}" if is_found else rule


def _of_field(what: str, name: str, known: Iterable[str]) -> str:
    if what == "missing required":
        return f"field '{name}' is missing"
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"unknown field '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")


def _in_words(kinds: str, bound: str) -> str:
    """`float` and ` >= 0.0` as `a number from 0 up`."""
    kind = " or ".join(_KINDS.get(name, name) for name in kinds.split(" | "))
    found = _BOUND.fullmatch(bound)
    if found is None:
        return kind + bound.replace(" matching regex ", " that matches ")
    limit = f"{float(found['limit']):,.15g}"
    if not found["length"]:
        return kind + _RANGES[found["relation"]].format(limit)
    many = "" if limit == "1" else "s"
    parts = f"character{many}" if kinds == "str" else "entry" if not many else "entries"
    return kind + _LENGTHS[found["relation"]].format(f"{limit} {parts}")
