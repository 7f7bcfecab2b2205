"""`hocket agent`: lend this machine to a controller on another one."""

from __future__ import annotations

import typer


def agent(ctx: typer.Context) -> None:
    """Lend this machine's devices to a controller on another one; `hocket up` lends those of its own.

    Its options: `hocket agent --help`, and docs/machines.md.
    """
    from hocket.agent.node.agent import run

    run(ctx.args, "hocket agent")
