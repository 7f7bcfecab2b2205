"""The options of `hocket tune … -- COMMAND`, checked, and the study of jobs that they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from hocket.cli.terminal.errors import INTERRUPTED, InputError, refusing

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.cli.live.tune_jobs import Describe
    from hocket.tune import StudyOutcome
    from hocket.tune.definition import Definition
    from hocket.tune.job_study import JobStudy, TrialCommand
    from hocket.tune.sampling import Sampler
    from hocket.tune.space import Domain

_NAME_LENGTH = 150  # of a study, so that its jobs' names are not too long


class CommandStudy(NamedTuple):
    """The command and its options."""

    command: list[str]
    job_options: dict[str, Any]
    space: list[str]
    search: dict[str, Any]
    metric: str
    goal: str | None  # None: by the metric's name
    unit: str
    reads_environment: bool
    sampler: str
    seed: int
    folder: Path | None
    export: str
    home: Path | None

    @property
    def name(self) -> str:
        """The study's name, as given, or from the command: `train`."""
        if given := self.job_options.get("name"):
            return str(given)
        words = [word for word in self.command if word.endswith(".py")] or self.command
        stem = os.path.basename(words[0]).removesuffix(".py") if words else ""
        return "".join(c if c.isalnum() or c in "-_." else "-" for c in stem).strip("-.")[:60] or "study"


def run_as_jobs(given: CommandStudy) -> tuple[StudyOutcome, Path]:
    """Run the study to its end; what it found, and where it is kept."""
    from hocket.cli.live.client import Client
    from hocket.cli.live.tune_jobs import JobTuner, free_prefix
    from hocket.control.journal import JournalError
    from hocket.tune.definition import StudyError
    from hocket.tune.job_study import begun_in, opened, refuse_other_jobs

    folder = given.folder or Path("tune-out") / given.name
    with refusing():
        definition, space, sampler, describe = _checked(given, folder)
    with Client(given.home) as client:
        with refusing():
            begun = begun_in(folder)
            if begun is not None:
                refuse_other_jobs(folder, begun, definition)
        if begun is None:
            definition = _with_prefix(definition, free_prefix(client, definition.name))
        try:
            with opened(definition, space, sampler, folder) as study, _Bar(study) as show:
                tuner = JobTuner(client, study, describe, show)
                try:
                    tuner.run()
                except KeyboardInterrupt:
                    raise _interrupted(client, tuner, study) from None
                return study.outcome, folder
        except (JournalError, StudyError) as error:
            raise InputError(str(error)) from error


def _checked(given: CommandStudy, folder: Path) -> tuple[Definition, dict[str, Domain], Sampler, Describe]:
    """All that can be wrong is found before anything is submitted."""
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.job_input.read_job import FieldProblem, read_job
    from hocket.tune.command_template import check_command
    from hocket.tune.definition import Definition, JobTemplate, check_name, check_search, goal_of
    from hocket.tune.job_study import TrialCommand
    from hocket.tune.job_trials import unit_of
    from hocket.tune.optuna_support import storage_for
    from hocket.tune.space import SpaceError, space_of_files_and_options
    from hocket.tune.study_file import sampler_of, search_of

    if not given.space:
        raise SpaceError("a command needs --space: hocket tune --space lr=loguniform:1e-4,0.1 -- python train.py {lr}")
    space = space_of_files_and_options(given.space)
    check_command(given.command, space, reads_environment=given.reads_environment)
    check_name(given.name)
    if len(given.name) > _NAME_LENGTH:
        raise ValueError(f"--name must have at most {_NAME_LENGTH} characters, as jobs are called after it")
    unit, search = unit_of(given.unit), search_of(given.search)
    goal = given.goal or goal_of(given.metric)
    check_search(search, goal, given.seed)
    sampler = sampler_of(given.sampler, space, given.seed)
    if given.export:
        storage_for(given.name, given.export)
    must_be_writable(folder, "--out", is_folder=True)
    options = {name: value for name, value in given.job_options.items() if name != "name"}
    given_env = list(options.get("env") or ())
    shell, here = dict(os.environ), os.getcwd()

    def describe(trial: TrialCommand) -> dict[str, Any]:
        env = [*given_env, *(f"{name}={value}" for name, value in trial.env.items())]
        job = {"name": trial.name, "command": trial.command, "env": env, "until": trial.until}
        job |= {"continues": trial.continues} if trial.continues else {}
        return read_job({"preempt": "saved"} | options | job, here, shell).spec

    try:
        describe(TrialCommand(f"{given.name}-0", given.command, {}, unit.bound(search.units), ""))
    except FieldProblem as problem:
        option = problem.field.rstrip(":")
        raise ValueError(f"--{option.replace('_', '-')} {problem.problem}" if option else str(problem)) from problem
    template = JobTemplate(tuple(given.command), str(unit), given.name, options)
    definition = Definition(
        given.name, space, search, 1, given.metric, goal, given.seed, "", None, False, None, str(sampler), template
    )
    return definition, space, sampler, describe


def _with_prefix(definition: Definition, prefix: str) -> Definition:
    from msgspec.structs import replace

    assert definition.jobs is not None
    return replace(definition, jobs=replace(definition.jobs, prefix=prefix))


class _Bar:
    """Shows how many units are done, and the best so far, on a terminal."""

    def __init__(self, study: JobStudy) -> None:
        from hocket.cli.terminal.progress import bars

        self._study, self._bars = study, bars(unit="units")
        self._task = self._bars.add_task(study.definition.name, total=study.total)

    def __enter__(self) -> Callable[[float], None]:
        self._bars.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _update(self, units: float) -> None:
        outcome = self._study.outcome
        best, result, metric = outcome.best, outcome.best_result, outcome.definition.metric
        best_so_far = ""
        if best is not None and result is not None:
            best_so_far = f", best {metric} {result.metrics[metric]:.4g} (trial {best.number})"
        self._bars.update(self._task, completed=int(units), description=f"{self._study.definition.name}{best_so_far}")


def _interrupted(client: Client, tuner: Any, study: JobStudy) -> typer.Exit:
    """Trials are paused, so that a study that was left takes no devices."""
    from shlex import quote

    assert study.definition.jobs is not None
    prefix = study.definition.jobs.prefix
    client.close()  # It may have been interrupted in the middle of an answer.
    count = tuner.pause()
    typer.echo(
        f"hocket: interrupted; {count} trials are paused: the same command goes on, "
        f"and `hocket stop {quote(prefix + '-*')}` ends them",
        err=True,
    )
    return typer.Exit(INTERRUPTED)
