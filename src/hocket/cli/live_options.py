"""Options of the commands that talk to a controller, and completion of the names of its jobs and owners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PATIENCE_S = 0.5  # of a shell that waits for completions


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For shell completion: jobs of the controller that runs, and nothing at all if none does."""
    from hocket.cli.client import Client
    from hocket.cli.job_rows import rows

    home = ctx.params.get("home")
    try:
        with Client(Path(home) if home else None, _PATIENCE_S) as client:
            # Of those that are over one still wants logs; a wish is for the living.
            everything = ctx.info_name in ("show", "why", "logs")
            return [row.id for row in rows(client, everything=everything) if row.id.startswith(incomplete)]
    except Exception:  # Whatever it is, a half-typed line is no place to say so.
        return []


def owner_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For shell completion: owners that the controller knows, and nothing at all if none runs."""
    from hocket.cli.client import Client
    from hocket.cli.owner_rows import owner_rows

    before = ctx.parent.params if ctx.parent is not None else {}  # `hocket owners --home DIR set …`
    home = ctx.params.get("home") or before.get("home")
    try:
        with Client(Path(home) if home else None, _PATIENCE_S) as client:
            return [row.id for row in owner_rows(client) if row.id and row.id.startswith(incomplete)]
    except Exception:  # Whatever it is, a half-typed line is no place to say so.
        return []


Home = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR", help="The controller's folder; HOCKET_HOME, or ~/.hocket.", show_default=False
    ),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its name.", autocompletion=job_names)]
JobNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB…", help="Names, or patterns such as 'sweep-*'.", autocompletion=job_names),
]
OwnerFilter = Annotated[
    str, typer.Option("--owner", metavar="NAME", help="Only jobs of this owner.", autocompletion=owner_names)
]
OwnerName = Annotated[str, typer.Argument(metavar="NAME", help="Of a user or team.", autocompletion=owner_names)]
