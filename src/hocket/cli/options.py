"""Options that several commands share, and how the shell completes their values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PATIENCE_S = 0.5  # of a shell that waits for completions


def policy_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from hocket.policies.registry import policies

    return [name for name in policies() if name.startswith(incomplete)]


def workload_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from hocket.workloads import sources

    return [s.name + (":" if s.takes_path else "") for s in sources() if s.name.startswith(incomplete)]


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For shell completion: jobs of the controller that runs, and nothing at all if none does."""
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import rows

    home = ctx.params.get("home")
    try:
        with Client(Path(home) if home else None, _PATIENCE_S) as client:
            # Jobs that have ended can be looked at, but not paused, resumed or stopped.
            everything = ctx.info_name in ("show", "why", "logs", "answer")
            return [row.id for row in rows(client, everything=everything) if row.id.startswith(incomplete)]
    except Exception:  # Whatever it is, a half-typed line is no place to say so.
        return []


def owner_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For shell completion: owners that the controller knows, and nothing at all if none runs."""
    from hocket.cli.live.client import Client
    from hocket.cli.live.owner_rows import owner_rows

    before = ctx.parent.params if ctx.parent is not None else {}  # `hocket owners --home DIR set …`
    home = ctx.params.get("home") or before.get("home")
    try:
        with Client(Path(home) if home else None, _PATIENCE_S) as client:
            return [row.id for row in owner_rows(client) if row.id and row.id.startswith(incomplete)]
    except Exception:  # Whatever it is, a half-typed line is no place to say so.
        return []


Everything = Annotated[
    bool,
    typer.Option("--all", help="Also cycles that were removed from the journal, from its archive."),
]
WorkloadSpec = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="What to run: philly:PATH, jobs.csv, jobs.toml, 'poisson?jobs=200', demo … (see `hocket workloads`).",
        autocompletion=workload_names,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the policy; may be repeated."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="309x8, 8x8:v100+8x8:p100 or a TOML file; up to a million GPUs; the workload's own if it has one.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seeds all random numbers: the same seed gives the same run.")]
BeliefsText = Annotated[
    str,
    typer.Option(
        "--beliefs",
        metavar="learned|oracle|noisy:X",
        help="What policies know of run times: what past jobs tell, the truth, or the truth with a relative error "
        "X of up to 10.",
    ),
]
History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="Past jobs to begin with, for policies that estimate when jobs are done: a JSON object a line "
        "(see `hocket journal history`).",
    ),
]
Noise = Annotated[
    float, typer.Option(min=0.0, help="How much the true speed of each start varies (σ of its log, up to 3).")
]
Switching = Annotated[
    str | None,
    typer.Option(metavar="COSTS", help="What a switch costs each job: prepare=20,start=10s,checkpoint=5,stop=2."),
]
SpeedsText = Annotated[
    str | None,
    typer.Option("--speeds", metavar="LAW", help="True speed by size: law:C, power:P, linear or gavel:PATH."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Stop the simulated clock here: 3600, 8h or 2d.")]
Plots = Annotated[Path | None, typer.Option(metavar="DIR", help="Draw figures into this folder, as PNG and SVG.")]

# -- of the commands that talk to a controller ------------------------------------------------------

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
At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="CYCLE|2h|DATE",
        help="As it was after that cycle of the journal, so long ago, or at a date: '2026-11-17 10:00'.",
    ),
]
OwnerFilter = Annotated[
    str, typer.Option("--owner", metavar="NAME", help="Only jobs of this owner.", autocompletion=owner_names)
]
OwnerName = Annotated[str, typer.Argument(metavar="NAME", help="Of a user or team.", autocompletion=owner_names)]
