"""`hocket demo`: what Hocket is about, in under a minute and without a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Those of these that are there: the demo shows differences, not everything.
SHOWN = ("fifo", "backfill", "srtf", "las", "edf", "fair", "drf", "round_robin")
DRAWN = ("fifo", "las", "fair")  # on their own too: figures take longer than runs


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the figures go.")] = Path("demo-out"),
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0 for one a core.")] = 0,
) -> None:
    """Compare policies on a built-in workload, with a table and plots."""
    from hocket.cli.compare import carried_out, exit_if_stuck, print_comparison
    from hocket.cli.crew import Assignment
    from hocket.cli.files import must_be_writable
    from hocket.cli.refusal import refusing
    from hocket.cli.scenario import Scenario
    from hocket.policies.registry import policies
    from hocket.reports.plots import plot_comparison
    from hocket.workloads import cluster_text, load

    with refusing():
        must_be_writable(out, "--out", is_folder=True)
        known = policies()
        workload = load("demo")
    names = [name for name in SHOWN if name in known]
    typer.echo(
        f"{len(workload.submissions)} jobs of {len(workload.owners)} teams on {cluster_text(workload.nodes)} GPUs, "
        f"under {len(names)} policies …",
        err=True,
    )
    drawn = [name for name in names if name in DRAWN]
    outcomes = carried_out(
        [Assignment(Scenario("demo", name), str(out / name) if name in drawn else None) for name in names], workers
    )
    comparison, _svg = plot_comparison(outcomes, out)
    print_comparison(outcomes, [])
    typer.echo(f"plots: {comparison} sets them side by side")
    for name in drawn:
        typer.echo(f"       {out / name}: gantt, queue, utilisation and jct of {name}")
    typer.echo("next:  hocket policies · hocket workloads · hocket simulate demo --policy fair")
    exit_if_stuck(outcomes)
