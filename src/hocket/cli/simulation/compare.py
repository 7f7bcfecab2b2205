"""`hocket compare WORKLOAD P1 P2 …`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import (
    AsJson,
    BeliefsText,
    Cluster,
    History,
    Noise,
    Params,
    Plots,
    Seed,
    SpeedsText,
    Switching,
    Until,
    WorkloadSpec,
    policy_names,
)

if TYPE_CHECKING:
    from hocket.cli.simulation.scenario import ScenarioRun
    from hocket.reports.comparison import ComparedRun


def compare(
    workload: WorkloadSpec,
    policy: Annotated[
        list[str],
        typer.Argument(
            metavar="POLICY…",
            help="Names, or NAME:PARAMETER=VALUE,… to compare settings of one policy.",
            autocompletion=policy_names,
        ),
    ],
    param: Params = None,
    cluster: Cluster = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Run so many seeds; the table shows mean and 95 % interval.")] = 1,
    beliefs: BeliefsText = "learned",
    noise: Noise = 0.0,
    switching: Switching = None,
    speeds: SpeedsText = None,
    until: Until = None,
    history: History = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0 for one a core.")] = 0,
    plots: Plots = None,
    as_json: AsJson = False,
) -> None:
    """Run a workload under several policies, in parallel processes, and set them side by side.

    Parameters given with --param go to every policy. Exit code 3 says that some run left jobs unfinished,
    or that all its jobs were refused.
    """
    from hocket.cli.policy_text import bound_policy
    from hocket.cli.simulation.scenario import Scenario, ScenarioRun
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.reports.comparison import without_repetitions

    params, given = tuple(param or ()), None if history is None else str(history)
    with refusing():
        if plots is not None:
            must_be_writable(plots, "--plots", is_folder=True)
        names = list(dict.fromkeys(policy))
        for name in names:
            bound_policy(name, params)  # A misspelt name is refused before anything runs.
    assignments = [
        ScenarioRun(Scenario(workload, name, params, cluster, n, beliefs, noise, switching, speeds, until, given))
        for name in names
        for n in range(seed, seed + seeds)
    ]
    outcomes = carried_out(assignments, workers)
    shown = without_repetitions(outcomes)
    drawn: list[Path] = []
    if plots is not None:
        from hocket.reports.plots import plot_comparison

        drawn = plot_comparison(shown, plots)
    if as_json:
        import msgspec

        print(msgspec.json.encode(_told(workload, outcomes)).decode())
    else:
        print_comparison(shown, drawn)
        if seeds > 1 and len(shown) == len(names):
            print(f"all {seeds} seeds gave the same results: nothing in this run is random, one seed is enough")
    exit_if_stuck(outcomes)


def carried_out(assignments: Sequence[ScenarioRun], workers: int = 0) -> list[ComparedRun]:
    """Run them all, with a bar for each on a terminal."""
    from hocket.cli.simulation.worker_pool import Begun, Progressed, Report, cores, run_all
    from hocket.cli.terminal.progress import bars

    progress = bars()
    several = len({a.scenario.seed for a in assignments}) > 1
    tasks: dict[int, Any] = {}

    def on_report(n: int, report: Report) -> None:
        scenario = assignments[n].scenario
        if isinstance(report, Begun):
            seed = f" seed {scenario.seed}" if several else ""
            tasks[n] = progress.add_task(f"{scenario.policy}{seed}", total=report.steps)
        elif isinstance(report, Progressed):
            progress.update(tasks[n], completed=report.steps)
        elif n in tasks:
            total = next(t.total for t in progress.tasks if t.id == tasks[n])
            progress.update(tasks[n], completed=total)

    with progress:
        return run_all(assignments, workers or cores(), on_report)


def print_comparison(outcomes: Sequence[ComparedRun], drawn: Sequence[Path]) -> None:
    """The table, and where the figures are."""
    from hocket.cli.terminal.console import console
    from hocket.reports.table import comparison_table

    page = console()
    page.print(comparison_table(outcomes, page.width))
    refusals = dict.fromkeys((o.summary.refused, o.refused) for o in outcomes if o.refused)
    for count, reason in refusals:  # Mostly the same ones, whatever the policy.
        page.print(f"{count:,} refused: {reason}", markup=False, highlight=False, soft_wrap=True)
    if drawn:
        page.print(f"plots in {drawn[0].parent}", markup=False, highlight=False, soft_wrap=True)


def exit_if_stuck(outcomes: Sequence[ComparedRun]) -> None:
    """Say why jobs were left unfinished, or all refused."""
    from hocket.cli.terminal.errors import UNFINISHED, all_refused

    several = len({o.summary.seed for o in outcomes}) > 1
    lines = []
    for o in outcomes:
        label = f"{o.label}, seed {o.summary.seed}" if several else o.label
        if o.stuck:
            lines.append(f"{label}: {o.summary.unfinished:,} unfinished: {o.stuck[0]}")
        if words := all_refused(o.summary, o.refused):
            lines.append(f"{label}: {words}")
    for line in lines:
        typer.echo(f"hocket: {line}", err=True)
    if lines:
        raise typer.Exit(UNFINISHED)


def _told(workload: str, outcomes: Sequence[ComparedRun]) -> dict[str, Any]:
    """Every run, and for every policy the mean of each number over its seeds with its 95 % interval."""
    from hocket.reports.mean_interval import mean_interval

    groups: dict[str, list[ComparedRun]] = {}
    for o in outcomes:
        groups.setdefault(o.label, []).append(o)
    means = {}
    for label, runs in groups.items():
        numbers: dict[str, Any] = {}
        for name in runs[0].summary.__struct_fields__:
            if name == "seed":
                continue
            values = [v for o in runs if _is_number(v := getattr(o.summary, name))]
            if values:
                numbers[name] = mean_interval(values)
        means[label] = numbers
    return {
        "workload": workload,
        "seeds": sorted({o.summary.seed for o in outcomes}),
        "policies": means,
        "runs": [{"label": o.label, "summary": o.summary} for o in outcomes],
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
