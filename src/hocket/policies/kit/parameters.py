"""A policy's parameters as a user sets them: read off their annotations, so that they are said once."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct


class Parameter(Struct, frozen=True):
    """One knob."""

    name: str
    type: str
    default: Any
    description: str = ""

    @property
    def default_text(self) -> str:
        """As `--param` takes it."""
        return self.default if isinstance(self.default, str) else msgspec.json.encode(self.default).decode()


def parameters(params: type[Struct]) -> list[Parameter]:
    """The fields of a parameter struct, in their order."""
    hints = get_type_hints(params, include_extras=True)
    found = []
    for field in msgspec.structs.fields(params):
        plain, metas = _taken_apart(hints[field.name])
        default = field.default if field.default is not NODEFAULT else None
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        description = next((m.description for m in metas if m.description), "")
        found.append(
            Parameter(field.name, _type_text(plain) + _bounds(metas), msgspec.to_builtins(default), description)
        )
    return found


def _taken_apart(hint: Any) -> tuple[Any, list[Meta]]:
    if get_origin(hint) is Annotated:
        plain, *extras = get_args(hint)
        return plain, [m for m in extras if isinstance(m, Meta)]
    return hint, []


def _type_text(plain: Any) -> str:
    return plain.__name__ if isinstance(plain, type) and not get_args(plain) else str(plain).replace("typing.", "")


def _bounds(metas: list[Meta]) -> str:
    signs = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
    bounds = [f"{sign} {value:g}" for m in metas for key, sign in signs if (value := getattr(m, key)) is not None]
    return f", {', '.join(bounds)}" if bounds else ""
