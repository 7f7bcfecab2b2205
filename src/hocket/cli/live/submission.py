"""From the command line to jobs that the controller has: all of them, or none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec.structs import replace

from hocket.cli.live.client import login
from hocket.cli.live.job_rows import LIVE, rows, send_job_request, unknown
from hocket.cli.live.toml_jobs import jobs_in, located
from hocket.cli.terminal.errors import BAD_INPUT, InputError
from hocket.control.admission import refusal
from hocket.job_input.launchers import launcher_warning
from hocket.job_input.read_job import FieldProblem, JobInput, read_job
from hocket.model.capacity import Capacity
from hocket.model.resources import Node

if TYPE_CHECKING:
    from hocket.cli.live.bundle_upload import Bundles
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import ListedJob

BATCH = 100  # jobs in one call


def described_jobs(
    command: list[str] | None, files: Sequence[Path], options: dict[str, Any], bundles: Bundles, verb: str = "submit"
) -> list[JobInput]:
    """All jobs that the command line means, checked before any is sent; `verb` is that of the `hocket` command.

    `bundles` gets the working directories that are sent along.
    """
    shell = dict(os.environ)
    if command is None and not files and "query" in options:
        command = []
    if command is not None:
        if files:
            raise InputError(f"give files or a command behind --, not both ('{files[0]}' stands before it)")
        try:
            return [read_job(options | {"command": command}, os.getcwd(), shell, bundles.pack)]
        except FieldProblem as problem:
            raise _refused(problem, options) from None
    if not files:
        raise InputError(
            f"{verb} needs a file of jobs, or a command behind two dashes: hocket {verb} -- python train.py"
        )
    if odd := [str(f) for f in files if f.suffix.lower() != ".toml" and not f.is_file()]:
        raise InputError(f"'{odd[0]}' is no file of jobs; put a command behind two dashes: hocket {verb} -- {odd[0]} …")
    found: list[JobInput] = []
    for name in {"cwd", "working_dir"} & options.keys():  # A command line's paths begin where it is typed.
        options |= {name: os.path.abspath(os.path.expanduser(options[name]))}
    if "pip" in options:
        options |= {"pip": [os.path.abspath(text) if text.endswith(".txt") else text for text in options["pip"]]}
    for path in files:
        for where, fields in jobs_in(path):
            try:
                found.append(read_job(fields | options, str(path.absolute().parent), shell, bundles.pack))
            except FieldProblem as problem:
                raise _refused(located(where, problem), {}) from None
    names = [each.spec["id"] for each in found if "id" in each.spec]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"name must be given to one job only, and '{twice}' stands for several")
    return found


def warn_of_missing_folders(jobs: Sequence[JobInput]) -> None:
    """Warn of working directories that are not here; another machine may have them, or an earlier job make them."""
    for folder in dict.fromkeys(each.spec["cwd"] for each in jobs):
        if folder and not os.path.isdir(folder):
            typer.echo(f"hocket: warning: there is no folder '{folder}' here for the job to run in", err=True)


def warn_of_launchers(jobs: Sequence[JobInput]) -> None:
    """Warn of numbers of processes in commands (`torchrun --nproc_per_node=2`) that are not those of the job."""
    for warning in dict.fromkeys(launcher_warning(each.spec) for each in jobs):
        if warning:
            typer.echo(f"hocket: warning: {warning}", err=True)


def _refused(problem: FieldProblem, options: dict[str, Any]) -> Exception:
    """An error in one line, or, of a criterion, three of them: its text, and a caret where it goes wrong."""
    option = problem.field.rstrip(":")
    message = str(problem)
    if option in options:
        message = f"--{option.replace('_', '-')}{message.removeprefix(option)}"
    if problem.position < 0:
        return InputError(message)
    from rich.cells import cell_len

    typer.echo(f"hocket: {message}", err=True)
    typer.echo(f"  {problem.text}", err=True)
    typer.echo(f"  {' ' * cell_len(problem.text[: problem.position])}^", err=True)
    return typer.Exit(BAD_INPUT)


def sent(client: Client, jobs: Sequence[JobInput], bundles: Bundles) -> list[str]:
    """Send them in batches; all are accepted, or those that were are stopped again."""
    specs = ready_to_send(client, jobs)
    bundles.upload(client)
    accepted: list[str] = []
    warnings: dict[str, None] = {}
    for first in range(0, len(specs), BATCH):
        batch = specs[first : first + BATCH]
        try:
            response = client.post("/v1/jobs", {"jobs": batch, "owner": login()}).json()
            answers = response["jobs"]
        except Exception as error:
            raise _withdrawn(client, accepted, str(error)) from error
        accepted += [answer["id"] for answer in answers if not answer.get("refused")]
        refused = [answer["refused"] for answer in answers if answer.get("refused")]
        if refused:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            raise _withdrawn(client, accepted, f"{refused[0]}{more}")
        warnings |= dict.fromkeys(response.get("warnings") or ())
    for warning in warnings:
        typer.echo(f"hocket: warning: {warning}", err=True)
    return accepted


def _withdrawn(client: Client, accepted: Sequence[str], why: str) -> Exception:
    """Half an experiment is of no use: stop what was accepted before something was refused."""
    if not accepted:
        return InputError(why)
    try:
        send_job_request(client, "stop", accepted)
    except InputError as error:
        left = f"{len(accepted)} jobs had been accepted and could not be stopped ({error})"
        return InputError(f"{why}; {left}: {', '.join(accepted[:5])}")
    return InputError(f"{why}; nothing is submitted, {len(accepted)} that had been accepted were stopped")


# -- checks with the controller's lists, before the first of several jobs is sent -------------------------------------


def ready_to_send(client: Client, jobs: Sequence[JobInput]) -> list[dict[str, Any]]:
    """The specs as they will be sent, with the names that patterns in `after` and `after_any` stand for.

    Raises InputError if one of several jobs would be refused. A single job is refused by the controller itself.
    """
    is_one = len(jobs) == 1 and "array" not in jobs[0].spec
    if is_one and not any(_is_pattern(name) for name in jobs[0].job.predecessors):
        return [jobs[0].spec]
    there = states_by_name(rows(client, everything=True))
    found = _with_names(jobs, [name for name, state in there.items() if state in LIVE])
    problem = submission_problem(found, there, client.get("/v1/nodes").json()["nodes"])
    if problem and not is_one:
        raise InputError(f"{problem}; nothing was submitted")
    return [each.spec for each in found]


def states_by_name(found: Sequence[ListedJob]) -> dict[str, str]:
    """The state of each job by its id, and by its name that of the newest, if a name was used again (`NAME~2`)."""
    states = {row.id: row.state for row in found}
    for row in found:  # in the order of submission
        name, tilde, number = row.id.rpartition("~")
        if tilde and number.isdecimal() and name in states:
            states[name] = row.state
    return states


def submission_problem(jobs: Sequence[JobInput], states: Mapping[str, str], nodes: Sequence[dict[str, Any]]) -> str:
    """Why one of the jobs would be refused, by the same rules as the controller's; empty if none would."""
    # The list of nodes does not say how much memory their GPUs have: that is left to the controller.
    whole = Capacity.of(
        Node(n["id"], len(n["gpus"]), n.get("gpu_kind", ""), inf, n["cores"], n["mem_mib"]) for n in nodes
    )
    new: set[str] = set()

    def verdict_of(name: str) -> str | None:
        state = states.get(name, "" if name in new else None)
        return "" if state in LIVE else state

    for each in jobs:
        names = list(_names(each.spec)) or ["(unnamed)"]
        for field in ("after", "after_any"):
            for name in getattr(each.job, field):
                if verdict_of(name) is None:
                    return f"job '{names[0]}': {field}: {unknown(name, [*states, *new])}"
        for name in names:
            if verdict_of(name) == "":
                state = states.get(name, "submitted with it")
                return f"job '{name}': name must be that of no live job, and there is one ({state})"
        # Its name may be that of a job that has ended; the id that it gets then is new.
        if reason := refusal(new, replace(each.job, id=f"{names[0]}~"), whole, None, verdict_of):
            return reason.replace(f"{names[0]}~", names[0], 1)
        new.update(_names(each.spec))
    return ""


def _names(spec: dict[str, Any]) -> Iterator[str]:
    """The names of the jobs that a spec makes, as far as the user gave them."""
    if "id" not in spec:
        return
    if "array" in spec:
        yield from (f"{spec['id']}-{n}" for n in range(spec["array"]))
    else:
        yield spec["id"]


def _with_names(jobs: Sequence[JobInput], live: Sequence[str]) -> list[JobInput]:
    """The jobs, each after others by name: live ones, and those submitted before it."""
    known = list(live)
    found = []
    for each in jobs:
        after, after_any = (_all_matching(field, getattr(each.job, field), known) for field in ("after", "after_any"))
        spec = each.spec | ({"after": after} if after else {}) | ({"after_any": after_any} if after_any else {})
        found.append(JobInput(spec, replace(each.job, after=tuple(after), after_any=tuple(after_any))))
        known += _names(spec)
    return found


def _all_matching(field: str, texts: Sequence[str], known: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts for name in _matching(field, text, known)))


def _matching(field: str, text: str, known: Sequence[str]) -> list[str]:
    if text in known or not _is_pattern(text):
        return [text]
    if not (found := [name for name in known if fnmatchcase(name, text)]):
        raise InputError(f"{field} must name jobs, and no live one matches '{text}'")
    return found


def _is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")
