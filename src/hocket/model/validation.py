"""What is wrong with a value that was given from outside: field, rule and value in one line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_PATH = re.compile(r"^(?P<rule>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


def shown(value: Any) -> str:
    """A value as an error names it: JSON, and not too much of it."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}…"


def explained(error: msgspec.ValidationError, given: Any) -> str:
    """msgspec's message as field, rule and value; `given` is what it could not convert."""
    found = _PATH.match(str(error))
    assert found is not None
    path, value = found["path"] or "", given
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return f"{path}: {found['rule']}"
    where, rule = f"{path}: " if path else "", found["rule"][:1].lower() + found["rule"][1:]
    if rule.startswith("object "):  # A field is missing, or one too many.
        return where + rule
    return f"{where}{rule.replace('`', '').split(', got ')[0]}, not {shown(value)}"
