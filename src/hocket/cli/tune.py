"""`hocket tune`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.live.job_options import JobCommand, given_command, given_job_options
from hocket.cli.options import AsJson, Home, Params, Plots, policy_names

if TYPE_CHECKING:
    from hocket.tune import Study, StudyOutcome
    from hocket.tune.study_file import StudyFile


class TuneCommand(JobCommand):
    """With the options of the jobs that trials are; when these end, and which they follow, the search says."""

    left_out = frozenset({"array", "working_dir", "until", "continues", "query", "data", "threads", "engine", "master"})


def tune(
    ctx: typer.Context,
    what: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STUDY | -- COMMAND…]",
            help="study.toml or a script with a function training(config), whose models are trained in this process; "
            "or a command with a {placeholder} for each hyperparameter: each trial is a job of the controller.",
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND:VALUES", help="As rate=loguniform:1e-4,0.1; may be repeated. For a command also a file."
        ),
    ] = None,
    search: Annotated[str | None, typer.Option(metavar="KIND", help="hyperband, halving, asha or random.")] = None,
    units: Annotated[int | None, typer.Option(min=1, help="R: what one configuration gets at most.")] = None,
    eta: Annotated[int | None, typer.Option(min=2, help="η: one in so many goes on.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Configurations; Hyperband's follow from R and η.")] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="Trials that asha has under way at the same time.")] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="LIMIT", help="Of a command: what one unit is, 1 epoch or 100 steps.")
    ] = None,
    from_env: Annotated[
        bool, typer.Option("--from-env", help="The command reads HOCKET_TUNE_NAME or HOCKET_TUNE_CONFIG.")
    ] = False,
    unit_steps: Annotated[int | None, typer.Option(min=1, help="Steps that are one unit.")] = None,
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Of those that evaluate gives.")] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="min|max", help="Whether less or more of it is better. By its name: max for acc, f1, reward, …"
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policy that says which models are packed together; pack_none: none.", autocompletion=policy_names
        ),
    ] = None,
    param: Params = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", "--way", metavar="MODE", help="How packs step: turn, joint, fused, graph …; else the fastest."
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Only modes that are bitwise equal to a solo run.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1.")] = None,
    memory_mib: Annotated[float | None, typer.Option(min=1, help="What a pack's models may take together.")] = None,
    sampler: Annotated[
        str | None, typer.Option(metavar="NAME", help="random, or one of Optuna's, as TPESampler.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seeds all random numbers: the same seed gives the same study.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the study is kept; tune-out/NAME by default.")
    ] = None,
    plots: Plots = None,
    export: Annotated[
        str | None, typer.Option(metavar="URL", help="Write the trials to an Optuna storage: sqlite:///trials.db.")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Search for good hyperparameters: any command as jobs, or many models in one training step.

    The study is kept as it goes: after Ctrl-C or a kill, the same command goes on from there. Run again
    with more units or trials, it continues with these.
    """
    from hocket.cli.terminal.errors import refusing
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.tune.optuna_support import storage_for

    in_process = {
        "--policy": policy, "--param": param, "--mode": mode, "--exact": exact or None, "--device": device,
        "--memory-mib": memory_mib, "--unit-steps": unit_steps,
    }  # fmt: skip
    of_jobs = {"--unit": unit, "--from-env": from_env or None}
    named = {"kind": search, "units": units, "eta": eta, "trials": trials, "at_once": at_once}
    table = {name: value for name, value in named.items() if value is not None}
    with refusing():
        if plots is not None:
            must_be_writable(plots, "--plots", is_folder=True)
        if (command := given_command(ctx)) is not None:
            _refuse_options(what, in_process)
        else:
            options = {f"--{name.replace('_', '-')}": value for name, value in given_job_options(ctx).items()}
            _refuse_jobs(what, of_jobs | options)
    if command is not None:
        from hocket.cli.live.tune_command import CommandStudy, run_as_jobs

        said = CommandStudy(
            command, given_job_options(ctx), space or [], table, metric or "loss", goal, unit or "1 epoch",
            from_env, sampler or "random", seed or 0, out, export or "", home,
        )  # fmt: skip
        outcome, folder = run_as_jobs(said)
        _report(outcome, folder, plots, export, as_json)
        return
    with refusing():
        assert what is not None
        file = _file(what)
        file.search |= table
        given = {
            "metric": metric, "goal": goal, "unit_steps": unit_steps, "policy": policy, "mode": mode, "device": device,
            "memory_mib": memory_mib, "sampler": sampler, "seed": seed, "folder": str(out) if out else None,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None:
                setattr(file, name, value)
        file.exact = file.exact or exact
        file.params |= _params(param)
        study = _study(file, space or [])
        if export is not None:
            storage_for(study.outcome.definition.name, export)
    _report(_run(study, home), Path(file.folder), plots, export, as_json)


def _refuse_options(what: Path | None, given: Mapping[str, object]) -> None:
    """Trials that are jobs need a controller, whose policy decides, and nothing that is said of packs."""
    if what is not None:
        raise ValueError(f"give a study or a command behind --, not both ('{what}' stands before it)")
    for option, value in given.items():
        if value is not None:
            why = "the controller's policy decides (hocket up --policy)" if option in ("--policy", "--param") else ""
            raise ValueError(f"{option} is for models in one process, not for a command behind --{why and f': {why}'}")


def _refuse_jobs(what: Path | None, given: Mapping[str, object]) -> None:
    if what is None:
        raise ValueError("tune needs a study, or a command behind two dashes: hocket tune … -- python train.py {lr}")
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option} is for a command behind --, whose trials are jobs, not for study '{what}'")


def _report(outcome: StudyOutcome, folder: Path, plots: Path | None, export: str | None, as_json: bool) -> None:
    from hocket.cli.terminal.errors import refusing
    from hocket.tune.optuna_support import export as write

    drawn = _drawn(outcome, plots)
    _show(outcome, folder, drawn, as_json)
    if export is not None:  # Last: a storage that is not there any more must not hide what hours have found.
        with refusing():
            write(outcome, export)
    if outcome.best is None:
        from hocket.cli.terminal.errors import UNFINISHED

        raise typer.Exit(UNFINISHED)


def _file(what: Path) -> StudyFile:
    from hocket.tune.study_file import StudyFile, read_file

    if what.suffix == ".toml":
        file = read_file(what)
    elif what.is_file():
        file = StudyFile(script=str(what), name=what.stem)
    else:
        raise ValueError(f"study '{what}' must be a TOML file or a script that exists")
    file.folder = file.folder or str(Path("tune-out") / file.name)
    return file


def _params(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--param '{item}' must be NAME=VALUE")
        found[name] = value
    return found


def _study(file: StudyFile, space: list[str]) -> Study:
    """All that can be wrong is found before anything is trained."""
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.tune.space import space_of_options
    from hocket.tune.study_file import study_of

    must_be_writable(Path(file.folder), "--out", is_folder=True)
    return study_of(file, space_of_options(space) if space else None).prepare()


def _run(study: Study, home: Path | None) -> StudyOutcome:
    from hocket.cli.live.study_reports import reports_of_process_study
    from hocket.cli.terminal.errors import InputError
    from hocket.cli.terminal.progress import bars
    from hocket.control.journal import JournalError
    from hocket.tune import SpaceError, StudyError
    from hocket.tune.study import progress_bar

    try:
        with reports_of_process_study(study, home) as tell, progress_bar(study, bars(unit="steps")) as show:

            def stepped(steps: int) -> None:
                show(steps)
                tell()

            study.run(stepped)
    except (JournalError, SpaceError, StudyError) as error:  # another process has it, or what is asked makes no sense
        raise InputError(str(error)) from error
    return study.outcome


def _drawn(outcome: StudyOutcome, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    from hocket.reports.study_report import plot_study

    return plot_study(outcome, folder)


def _show(outcome: StudyOutcome, folder: Path, drawn: list[Path], as_json: bool) -> None:
    from hocket.reports.study_report import study_as_dict

    if as_json:
        import msgspec

        print(msgspec.json.encode(study_as_dict(outcome)).decode())
        return
    from hocket.cli.terminal.console import console
    from hocket.reports.formatting import format_duration, format_number
    from hocket.reports.study_report import rung_table, trial_table

    page = console()

    def say(text: str) -> None:
        page.print(text, markup=False, highlight=False, soft_wrap=True)

    page.print(rung_table(outcome))
    page.print(trial_table(outcome))
    numbers = study_as_dict(outcome)
    failed = f", {numbers['failed']} failed" if numbers["failed"] else ""
    models, times = numbers.get("models_in_a_pack"), numbers.get("gain")
    packs = f", {format_number(models)} models in a pack" if models else ""
    gain = f", {format_number(times)} times as fast as in turn" if times else ""
    jobs = outcome.definition.jobs
    done = f"{outcome.steps:,} steps" if jobs is None else f"{outcome.steps:,} units of {jobs.unit}"
    say(f"{numbers['trials']} trials{failed}, {done} in {format_duration(outcome.seconds)}{packs}{gain}")
    for number, reason in list(numbers["failures"].items())[:3]:
        say(f"trial {number} failed: {reason}")
    best, result = outcome.best, outcome.best_result
    if best is not None and result is not None:
        metric = outcome.definition.metric
        values = ", ".join(f"{name} {value}" for name, value in best.config.items())
        say(
            f"best: {metric} {format_number(result.metrics[metric])} after {result.units} units, "
            f"trial {best.number}: {values}"
        )
    elif numbers["failed"]:
        say("all trials failed: the same command begins anew")
    say(f"kept in {folder}" + (f"; {len(drawn)} figures in {drawn[0].parent}" if drawn else ""))
