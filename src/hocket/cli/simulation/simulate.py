"""`hocket simulate WORKLOAD --policy P`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from collections.abc import Callable, Iterable

    from hocket.control.ports import Cycle
    from hocket.reports.simulation import FinishedSimulation, SimulationSetup


def simulate(
    workload: WorkloadSpec,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="Its name (see `hocket policies`).", autocompletion=policy_names)
    ],
    param: Params = None,
    cluster: Cluster = None,
    seed: Seed = 0,
    beliefs: BeliefsText = "learned",
    noise: Noise = 0.0,
    switching: Switching = None,
    speeds: SpeedsText = None,
    until: Until = None,
    history: History = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Keep every event and plan in this SQLite file.")
    ] = None,
    plots: Plots = None,
    jobs_csv: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write a row a job to this CSV file; - for stdout.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every decision, as columns to learn from, to this folder.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a page that shows the run in a browser to this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a workload under a policy, in simulated time.

    Exit code 3 says that jobs were left which nothing more would happen to, or that all were refused.
    """
    from hocket.cli.simulation.scenario import Scenario, staged
    from hocket.cli.terminal.errors import UNFINISHED, all_refused, refusing
    from hocket.cli.terminal.fast_exit import keep
    from hocket.cli.terminal.output_files import must_be_none_of, must_be_writable

    with refusing():
        to_stdout = str(jobs_csv) == "-"
        if to_stdout and as_json:
            raise ValueError("--jobs-csv - and --json must not both be given: stdout is for one of them")
        for path, what in ((journal, "--journal"), (None if to_stdout else jobs_csv, "--jobs-csv")):
            if path is not None:
                must_be_writable(path, what)
                must_be_none_of(path, what, workload, cluster, speeds)
        for path, what in ((plots, "--plots"), (record, "--record"), (page, "--page")):
            if path is not None:
                must_be_writable(path, what, is_folder=True)
        scenario = Scenario(
            workload, policy, tuple(param or ()), cluster, seed, beliefs, noise, switching, speeds, until,
            None if history is None else str(history),
        )  # fmt: skip
        setup = staged(scenario)
    if history is not None and not setup.policy.needs["recalls"]:
        typer.echo(f"hocket: policy '{policy}' does not look at past jobs: --history changes nothing", err=True)
    taken = None
    if record is not None:
        from msgspec.structs import replace

        from hocket.reports.decision_record import DecisionRecord

        taken = DecisionRecord(replace(setup.header, params=setup.policy.settings))
        setup = replace(setup, policy=replace(setup.policy, decide=taken.watching(setup.policy.decide)))
    cycles: list[Cycle] = []
    run = _played(setup, journal, None if taken is None or record is None else partial(taken.write, record), cycles)
    keep((setup, run))
    if jobs_csv is not None:
        import sys
        from contextlib import nullcontext

        from hocket.cli.terminal.output_files import whole
        from hocket.reports.jobs_csv import write_jobs

        with nullcontext(sys.stdout) if to_stdout else whole(jobs_csv) as out:
            write_jobs(run.account, out)
    drawn: list[Path] = []
    if plots is not None:
        from hocket.reports.plots import plot_run

        drawn = plot_run(run.account, plots)
    written = _page(setup, cycles, page) if page is not None else None
    _print(run, drawn, written, as_json, to_stderr=to_stdout)
    lines = [f"unfinished: {line}" for line in run.stuck]
    if words := all_refused(run.summary, next((reason or job for job, reason in run.account.refusals), "")):
        lines.append(words)
    for line in lines:
        typer.echo(f"hocket: {line}", err=True)
    if lines:
        raise typer.Exit(UNFINISHED)


def _played(
    setup: SimulationSetup,
    path: Path | None,
    record: Callable[[Iterable[Cycle]], object] | None,
    cycles: list[Cycle],
) -> FinishedSimulation:
    """Run it, and give its cycles. What was decided until Ctrl-C is recorded, too."""
    from contextlib import nullcontext

    from hocket.cli.simulation.policy_fault import blaming
    from hocket.cli.simulation.recording import Recording
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.progress import watching
    from hocket.control.journal import MemoryJournal
    from hocket.reports.simulation import ended_in, run_simulation

    with refusing():
        kept = Recording(path, setup.header) if path is not None else MemoryJournal(setup.header)
    counted = ended = 0

    def count() -> int:
        nonlocal counted, ended
        now = len(kept.cycles)
        ended += ended_in(kept.cycles, counted, now)
        counted = now
        return ended

    what = f"{setup.policy.policy.name} · {setup.workload.name}"
    with (
        kept if isinstance(kept, Recording) else nullcontext(),
        watching(what, len(setup.workload.submissions), count),
        blaming(setup.policy),
    ):
        try:
            run = run_simulation(setup, kept)
        except KeyboardInterrupt:
            if record is not None:
                record(kept)
            raise
    if record is not None:
        record(kept)
    cycles += kept.cycles
    return run


def _page(setup: SimulationSetup, cycles: list[Cycle], folder: Path) -> Path:
    from hocket.cli.page_folder import write_page
    from hocket.control.journal import MemoryJournal

    journal = MemoryJournal(setup.header)
    journal.extend(cycles)
    return write_page(journal, folder)


def _print(run: FinishedSimulation, drawn: list[Path], written: Path | None, as_json: bool, to_stderr: bool) -> None:
    if as_json:
        import msgspec

        print(msgspec.json.encode(run.summary).decode())
        return
    from hocket.cli.terminal.console import console
    from hocket.reports.table import summary_table

    page = console(to_stderr)
    page.print(summary_table(run.summary))
    if written is not None:
        page.print(f"page in {written}", markup=False, highlight=False, soft_wrap=True)
    for job_id, reason in run.account.refusals[:3]:
        page.print(f"refused: {reason or job_id}", markup=False, highlight=False, soft_wrap=True)
    if len(run.account.refusals) > 3:
        page.print(f"… and {len(run.account.refusals) - 3:,} more refused")
    if drawn:
        page.print(f"plots in {drawn[0].parent}", markup=False, highlight=False, soft_wrap=True)
