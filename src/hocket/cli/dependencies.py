"""`--after 'sweep-*'`: patterns become the names of the jobs that they stand for when submitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any


def has_patterns(specs: Sequence[dict[str, Any]]) -> bool:
    """Whether any of them waits for jobs that are not named one by one."""
    return any(_is_pattern(name) for spec in specs for name in spec.get("after", ()))


def names_of(spec: dict[str, Any]) -> Iterator[str]:
    """The names of the jobs that a spec makes, as far as the user gave them."""
    if "id" not in spec:
        return
    if "array" in spec:
        yield from (f"{spec['id']}-{n}" for n in range(spec["array"]))
    else:
        yield spec["id"]


def with_names(specs: Sequence[dict[str, Any]], live: Sequence[str]) -> list[dict[str, Any]]:
    """The specs, each waiting for jobs by name: live ones, and those submitted before it."""
    known = list(live)
    found = []
    for spec in specs:
        found.append(_with_names(spec, known))
        known += names_of(spec)
    return found


def _with_names(spec: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    from hocket.cli.refusal import InputError

    found: dict[str, None] = {}
    for name in spec.get("after", ()):
        matching = [k for k in known if fnmatchcase(k, name)] if _is_pattern(name) and name not in known else [name]
        if not matching:
            raise InputError(f"after must name jobs, and no live one matches '{name}'")
        found.update(dict.fromkeys(matching))
    return spec | ({"after": list(found)} if found else {})


def _is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")
