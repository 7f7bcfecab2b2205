"""From what was said on the command line to jobs that the controller has: all of them, or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from hocket.cli.client import Client
    from hocket.cli.job_spec import FieldProblem

BATCH = 100  # jobs in one call


def specs_of(command: list[str] | None, files: Sequence[Path], options: dict[str, Any]) -> list[dict[str, Any]]:
    """All jobs that the command line means, checked before any is sent."""
    import os

    from hocket.cli.job_file import jobs_in, located
    from hocket.cli.job_spec import FieldProblem, job_spec
    from hocket.cli.login import login
    from hocket.cli.refusal import InputError

    shell = dict(os.environ)
    whose = {"owner": login()}
    if command is not None:
        if files:
            raise InputError(f"give files or a command behind --, not both ('{files[0]}' stands before it)")
        try:
            return [job_spec(whose | options | {"command": command}, os.getcwd(), shell)]
        except FieldProblem as problem:
            raise _refused(problem, options) from None
    if not files:
        raise InputError(
            "submit needs a file of jobs, or a command behind two dashes: hocket submit -- python train.py"
        )
    if odd := [str(f) for f in files if f.suffix.lower() != ".toml" and not f.is_file()]:
        raise InputError(f"'{odd[0]}' is no file of jobs; put a command behind two dashes: hocket submit -- {odd[0]} …")
    found: list[dict[str, Any]] = []
    if "cwd" in options:
        options |= {"cwd": os.path.abspath(os.path.expanduser(options["cwd"]))}
    for path in files:
        for where, said in jobs_in(path):
            try:
                found.append(job_spec(whose | said | options, str(path.absolute().parent), shell))
            except FieldProblem as problem:
                raise _refused(located(where, problem), {}) from None
    names = [spec["id"] for spec in found if "id" in spec]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"name must be given to one job only, and '{twice}' stands for several")
    return found


def warn_of_folders(specs: Sequence[dict[str, Any]]) -> None:
    """Say which folders to run in are not here; another machine may have them, or an earlier job make them."""
    import os

    for folder in dict.fromkeys(spec["cwd"] for spec in specs):
        if not os.path.isdir(folder):
            typer.echo(f"hocket: warning: there is no folder '{folder}' here for the job to run in", err=True)


def _refused(problem: FieldProblem, options: dict[str, Any]) -> Exception:
    """An error in one line, or, of a criterion, three of them: its text, and a caret where it goes wrong."""
    from hocket.cli.refusal import BAD_INPUT, InputError

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


def sent(client: Client, specs: Sequence[dict[str, Any]]) -> list[str]:
    """Send them in batches; all are accepted, or those that were are stopped again."""
    from hocket.cli.preflight import ready_to_send

    specs = ready_to_send(client, specs)
    accepted: list[str] = []
    for first in range(0, len(specs), BATCH):
        batch = specs[first : first + BATCH]
        try:
            answers = client.post("/v1/jobs", {"jobs": batch}).json()["jobs"]
        except Exception as error:
            raise _withdrawn(client, accepted, str(error)) from error
        accepted += [answer["id"] for answer in answers if not answer.get("refused")]
        refused = [answer["refused"] for answer in answers if answer.get("refused")]
        if refused:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            raise _withdrawn(client, accepted, f"{refused[0]}{more}")
    return accepted


def _withdrawn(client: Client, accepted: Sequence[str], why: str) -> Exception:
    """Nobody wants the first half of an experiment: stop what was accepted before something was refused."""
    from hocket.cli.job_rows import wished
    from hocket.cli.refusal import InputError

    if not accepted:
        return InputError(why)
    try:
        wished(client, "stop", accepted)
    except InputError as error:
        said = f"{len(accepted)} jobs had been accepted and could not be stopped ({error})"
        return InputError(f"{why}; {said}: {', '.join(accepted[:5])}")
    return InputError(f"{why}; nothing is submitted, {len(accepted)} that had been accepted were stopped")
