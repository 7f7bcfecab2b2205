"""`hocket reproduce PAPER`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from hocket.reports.mean_interval import MeanInterval
    from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request
    from hocket.reproductions.results_file import CaseResult

_OTHERS = "made by other sources of hocket than are here, or do not say by which"


def paper_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from hocket.reproductions import reproductions

    return [name for name in reproductions() if name.startswith(incomplete)]


def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(metavar="PAPER", help="Which; without one, all are listed.", autocompletion=paper_names),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each approach; 10 where the paper repeats nothing.")
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measured throughputs (Gavel's JSON) instead of a scaling law.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="A real trace, where the paper uses one.")] = None,
    curves: Annotated[
        Path | None,
        typer.Option(metavar="FILE|DIR", help="Measured learning curves (Pollux's), beside the built-in families."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Results and figures; reproduce-out/PAPER by default.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the results in --out, which a run that was cut off left; else it puts them aside. "
            "Those of other sources of hocket are counted.",
        ),
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0 for one a core.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a paper's evaluation again: its figures, ours beside them, and what was assumed.

    Results are kept as they come: after Ctrl-C or a kill, --resume goes on from there. What was run on other files, or
    with other settings of a policy, is run again.
    """
    from msgspec.structs import replace

    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.reproductions import find
    from hocket.reproductions.results_file import cases_of

    if paper is None:
        _list()
        return
    with refusing():
        chosen = find(paper)
        request = _request(chosen, seeds, {"profiles": profiles, "trace": trace, "curves": curves})
        folder = out if out is not None else Path("reproduce-out") / chosen.name
        must_be_writable(folder, "--out", is_folder=True)
        if chosen.one_at_a_time and workers > 1:
            raise ValueError(f"--workers: the runs of '{chosen.name}' are measured one at a time, not {workers}")
        cases = cases_of(chosen, request)  # What is wrong with it is said before anything runs.
    made = _made(chosen, cases, folder, resume=resume, workers=workers)
    results = [(case, found.result) for case, found in made]
    findings = chosen.findings(request, results)
    others = _of_other_sources(chosen, (found for _case, found in made))
    if others:
        remark = f"{others} of {len(made)} results were {_OTHERS}."
        findings = replace(findings, remarks=(*findings.remarks, remark))
    drawn = chosen.draw(request, results, folder)
    assumptions = chosen.assumptions(request)
    told = _told(chosen, request, findings, assumptions, others)
    _write(folder / "findings.json", told)
    if as_json:
        print(told.decode())
        return
    from hocket.cli.terminal.console import console

    page = console()
    show(page, chosen, request, findings, assumptions)
    figures = f" and {len(drawn)} figures" if drawn else ""
    page.print(f"results{figures} in {folder}", markup=False, highlight=False, soft_wrap=True)


_CURVES = "pollux_validation.csv.gz"  # as Pollux's curves are called, in a folder that was given


def _request(chosen: Reproduction, seeds: int | None, given: dict[str, Path | None]) -> Request:
    from hocket.reproductions import Request

    paths = {}
    for name, path in given.items():
        if path is None:
            continue
        if name not in chosen.takes:
            raise ValueError(f"--{name}: '{chosen.name}' uses none, and '{path}' was given")
        file = path / _CURVES if name == "curves" and path.is_dir() else path
        if not file.is_file():
            raise ValueError(f"--{name} '{file}' must be a file that exists")
        paths[name] = str(file)
    wanted = chosen.seeds if seeds is None else seeds
    return Request(tuple(range(wanted)), **paths)


def _made(
    chosen: Reproduction, cases: Sequence[Case], folder: Path, *, resume: bool, workers: int
) -> list[tuple[Case, CaseResult]]:
    """Run what is not known yet, with a bar for each."""
    from hocket.cli.simulation.case_run import CaseRun
    from hocket.cli.simulation.worker_pool import Begun, Done, Progressed, Report, cores, run_all
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.progress import bars
    from hocket.reproductions.results_file import ResultsFile

    with refusing():
        kept = ResultsFile(folder / "results.jsonl", chosen, resume=resume)
    made = {n: found for n, case in enumerate(cases) if (found := kept.get(case)) is not None}
    missing = [n for n in range(len(cases)) if n not in made]
    if others := _of_other_sources(chosen, made.values()):
        typer.echo(f"hocket: {others} of {len(made)} results in {folder} were {_OTHERS}; they are kept", err=True)
    progress = bars(unit="")
    every = progress.add_task(f"{chosen.name}: all runs", total=len(cases), completed=len(cases) - len(missing))
    tasks: dict[int, Any] = {}

    def on_report(i: int, report: Report) -> None:
        n = missing[i]
        if isinstance(report, Begun):
            tasks[n] = progress.add_task(cases[n].title, total=report.steps)
        elif isinstance(report, Progressed) and n in tasks:
            progress.update(tasks[n], completed=report.steps)
        elif isinstance(report, Done):
            made[n] = report.result
            kept.add(cases[n], report.result)
            progress.advance(every)
            if n in tasks:
                progress.remove_task(tasks.pop(n))

    many = 1 if chosen.one_at_a_time else workers or cores()
    try:
        with kept, progress:
            run_all([CaseRun(chosen.name, cases[n]) for n in missing], many, on_report)
    except KeyboardInterrupt:
        typer.echo(f"{len(made)} of {len(cases)} results are kept in {folder}: --resume goes on from there", err=True)
        raise
    return [(case, made[n]) for n, case in enumerate(cases)]


def _of_other_sources(chosen: Reproduction, made: Iterable[CaseResult]) -> int:
    """How many were not made by the sources that this process runs."""
    from hocket.reproductions.results_file import own_sources

    ours = own_sources(chosen)  # As they are when this is first asked, before anything is run.
    return sum(found.sources != ours for found in made)


def _list() -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from hocket.cli.terminal.console import console
    from hocket.cli.terminal.errors import InputError
    from hocket.reproductions.reproduction import INSTALL, reproductions

    known = reproductions()
    if not known:
        raise InputError(f"no papers are installed; {INSTALL}")
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for title in ("paper", "what is run", "can use"):
        table.add_column(title, overflow="fold")
    for r in known.values():
        table.add_row(f"{r.name}", f"{r.summary} ({r.paper})", ", ".join(f"--{n}: {use}" for n, use in r.takes.items()))
    console().print(table)


def show(
    page: Console, chosen: Reproduction, request: Request, findings: Findings, assumptions: Sequence[Assumption]
) -> None:
    """The paper's figures and ours, then what was assumed, then what to think of it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    seeds = len(request.seeds)
    page.print(Text(f"{chosen.paper}: {chosen.summary}; {seeds} seed{'s' if seeds > 1 else ''}", style="bold"))
    remarked = any(f.remark for f in findings.findings)
    for group in dict.fromkeys(f.group for f in findings.findings):
        here = [f for f in findings.findings if f.group == group]
        bounded = any(f.bound is not None for f in here)
        table = Table(title=group, title_justify="left", box=SIMPLE_HEAD, header_style="bold")
        table.add_column("figure", overflow="fold")
        table.add_column("paper", justify="right")
        table.add_column("ours", justify="right", no_wrap=True)
        if bounded:
            table.add_column("any scheduler", justify="right", no_wrap=True)
            table.add_column("below the paper", overflow="fold")
        if remarked:
            table.add_column("remark", overflow="fold")
        for f in here:
            cells = [f.what, f.paper or "–", _written(f.ours, f.unit)]
            cells += [_bound(f), _gap(f)] if bounded else []
            table.add_row(*map(Text, [*cells, f.remark] if remarked else cells))
        page.print(table)
    table = Table(title="Assumed", title_justify="left", box=SIMPLE_HEAD, header_style="bold")
    for title in ("what", "taken", "from"):
        table.add_column(title, overflow="fold")
    for a in assumptions:
        table.add_row(Text(a.what), Text(a.taken), Text(a.source))
    page.print(table)
    for remark in findings.remarks:
        page.print(Text(f"• {remark}"))


def _written(found: MeanInterval | None, unit: str) -> str:
    from hocket.reports.formatting import format_number

    if found is None:
        return "–"
    unit = unit if unit in ("×", "") else f" {unit}"
    if found.half_width is None:
        return f"{format_number(found.mean)}{unit}"
    return f"{format_number(found.mean)} ± {format_number(found.half_width)}{unit}"


def _bound(finding: Finding) -> str:
    return "" if finding.bound is None else f"≤ {_written(finding.bound, finding.unit)}"


def _gap(finding: Finding) -> str:
    """By the set-up, and by the policy at most."""
    from hocket.reports.formatting import format_number

    gap = finding.gap
    if gap is None:
        return ""
    return f"set-up {format_number(gap.set_up)}, policy ≤ {format_number(gap.policy)}"


def _told(
    chosen: Reproduction, request: Request, findings: Findings, assumptions: Sequence[Assumption], others: int
) -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "reproduction": chosen.name,
            "paper": chosen.paper,
            "seeds": request.seeds,
            "of_other_sources": others,
            "findings": findings.findings,
            "remarks": findings.remarks,
            "assumptions": list(assumptions),
        }
    )


def _write(path: Path, told: bytes) -> None:
    from hocket.cli.terminal.output_files import whole

    with whole(path) as file:
        file.write(told.decode() + "\n")
