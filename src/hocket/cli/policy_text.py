"""A policy with its parameters, as the command line says it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.policies.registry import BoundPolicy, find


def bound_policy(text: str, params: Sequence[str] = ()) -> BoundPolicy:
    """A policy with its parameters: `las`, or `las:promote=4,levels_gpu_s=[1,2]`, and more of them as NAME=VALUE."""
    name, _, own = text.partition(":")
    policy = find(name)
    settings: dict[str, object] = {}
    for pair in [*_split(own), *params]:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"policy '{name}': a parameter must be written as NAME=VALUE, not '{pair}'")
        settings[key.strip()] = _value(name, key, value.strip())
    return policy.bound(settings)


def _split(text: str) -> list[str]:
    """The parts between commas; those within brackets belong to a list."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[{") - (c in "]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts if text else []


def _value(policy: str, key: str, text: str) -> object:
    """Lists and tables are JSON; all else stays text, which the parameter's own type then reads."""
    if not text.startswith(("[", "{", '"')):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"policy '{policy}', parameter '{key}': the value must be JSON ({error}), not '{text}'"
        ) from error
