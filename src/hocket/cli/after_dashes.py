"""What stands behind `--` on a command line: another command, of which not a word is ours."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

_KEY = "hocket.after_dashes"


class AfterDashes(TyperCommand):
    """A command that keeps what stands behind the first `--` apart from its own arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Part the line, and read the first half."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def after_dashes(ctx: typer.Context) -> list[str] | None:
    """The other command; None if there is no `--`."""
    found: list[str] | None = ctx.meta.get(_KEY)
    return found
