"""`hocket submit job.toml …` and `hocket submit [options] -- COMMAND`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.live_options import Home, job_names
from hocket.cli.options import AsJson

if TYPE_CHECKING:
    from hocket.cli.client import Client
    from hocket.cli.job_spec import FieldProblem

BATCH = 100  # jobs in one call
_WHAT, _WHERE, _WHEN, _HOW = "The job", "What it needs", "When it runs", "How it runs"


def submit(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.toml… | -- COMMAND…]", help="Files of jobs, or a command behind two dashes."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Made up if not given.", rich_help_panel=_WHAT)
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="User or team; the login name by default.", rich_help_panel=_WHAT)
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="CRITERION", help="Done when: 'acc >= 92% within 2h'.", rich_help_panel=_WHAT),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="N|0-M", help="So many jobs NAME-0, NAME-1 …, each with HOCKET_ARRAY_INDEX.", rich_help_panel=_WHAT
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Under which its history is kept for estimates.", rich_help_panel=_WHAT)
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,4", help="How many it may run on: 2, 1,2,4 or 1-4; 0 for none.", rich_help_panel=_WHERE
        ),
    ] = None,
    replica_gpus: Annotated[
        str | None, typer.Option(metavar="N", help="GPUs that one process uses; 1.", rich_help_panel=_WHERE)
    ] = None,
    cpus: Annotated[
        str | None, typer.Option(metavar="N", help="Cores of each replica.", rich_help_panel=_WHERE)
    ] = None,
    mem: Annotated[
        str | None, typer.Option(metavar="8G", help="Memory of each replica.", rich_help_panel=_WHERE)
    ] = None,
    gpu_kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Accepted kinds; repeatable.", rich_help_panel=_WHERE)
    ] = None,
    gpu_mem: Annotated[
        str | None, typer.Option(metavar="40G", help="What each GPU must have at least.", rich_help_panel=_WHERE)
    ] = None,
    max_nodes: Annotated[
        str | None, typer.Option(metavar="N", help="Machines it may span; 0 for any number.", rich_help_panel=_WHERE)
    ] = None,
    priority: Annotated[str | None, typer.Option(metavar="N", help="Larger goes first.", rich_help_panel=_WHEN)] = None,
    weight: Annotated[str | None, typer.Option(metavar="X", help="Its part in shares.", rich_help_panel=_WHEN)] = None,
    urgency: Annotated[
        str | None, typer.Option(metavar="1-10", help="For policies with one.", rich_help_panel=_WHEN)
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="6h", help="Wanted by then, from now on.", rich_help_panel=_WHEN)
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="2h30m", help="How long it may run, in all.", rich_help_panel=_WHEN)
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB",
            help="Not before this one is over; a name or 'sweep-*'; repeatable.",
            autocompletion=job_names,
            rich_help_panel=_WHEN,
        ),
    ] = None,
    retries: Annotated[
        str | None, typer.Option(metavar="N", help="Restarts after a crash; 3.", rich_help_panel=_WHEN)
    ] = None,
    backoff: Annotated[
        str | None, typer.Option(metavar="1s", help="Rest after a crash, doubled each time.", rich_help_panel=_WHEN)
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="DIR", help="Where; here.", rich_help_panel=_HOW)] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="K[=V]", help="A variable, or one of the shell's; repeatable.", rich_help_panel=_HOW),
    ] = None,
    export_all: Annotated[
        bool, typer.Option("--export-all", help="The shell's whole environment.", rich_help_panel=_HOW)
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Goes on from a checkpoint; the same command.", rich_help_panel=_HOW),
    ] = None,
    signal: Annotated[
        str | None,
        typer.Option(metavar="USR1", help="Asks it to save and leave; TERM.", rich_help_panel=_HOW),
    ] = None,
    checkpoint_signal: Annotated[
        str | None, typer.Option(metavar="USR2", help="Asks it to save and go on.", rich_help_panel=_HOW)
    ] = None,
    grace: Annotated[
        str | None, typer.Option(metavar="30s", help="How long leaving may take.", rich_help_panel=_HOW)
    ] = None,
    warm: Annotated[
        bool | None,
        typer.Option("--warm/--no-warm", help="Whether it may be prepared beforehand.", rich_help_panel=_HOW),
    ] = None,
    progress: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[:WHERE]",
            help="How progress is read: json:FILE, csv:FILE, tensorboard:DIR, pattern:REGEX, none.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    hang: Annotated[
        str | None, typer.Option(metavar="10m", help="Hung when without progress so long.", rich_help_panel=_HOW)
    ] = None,
    log_size: Annotated[
        str | None, typer.Option(metavar="64M", help="Kept of the output of each run.", rich_help_panel=_HOW)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; Ctrl-C ends the waiting only.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs; prints their names.

    Options given with a file hold for all its jobs. With --wait: exit code 0 if all finished or attained their
    criterion, 1 if one failed, 3 otherwise.
    """
    said = {
        "name": name, "owner": owner, "until": until, "array": array, "model": model, "gpus": gpus,
        "replica_gpus": replica_gpus, "cpus": cpus, "mem": mem, "gpu_kind": gpu_kind, "gpu_mem": gpu_mem,
        "max_nodes": max_nodes, "priority": priority, "weight": weight, "urgency": urgency, "deadline": deadline,
        "time": time, "after": after, "retries": retries, "backoff": backoff, "cwd": cwd, "env": env,
        "export_all": export_all or None, "resume": resume, "signal": signal, "checkpoint_signal": checkpoint_signal,
        "grace": grace, "warm": warm, "progress": progress, "hang": hang, "log_size": log_size,
    }  # fmt: skip
    specs = _specs(ctx, files or [], {key: value for key, value in said.items() if value not in (None, [])})
    import msgspec

    from hocket.cli.client import Client

    if dry_run:
        print(msgspec.json.format(msgspec.json.encode({"jobs": specs})).decode())
        return
    with Client(home) as client:
        ids = _sent(client, specs)
        if not as_json:
            print("\n".join(ids), flush=True)
        ends = {}
        if wait:
            from hocket.cli.waiting import await_ends

            ends = await_ends(client, ids)
    if as_json:
        told = [{"id": job_id} | ({"state": ends[job_id]} if wait else {}) for job_id in ids]
        print(msgspec.json.encode({"jobs": told}).decode())
    if wait:
        from hocket.cli.waiting import exit_code

        raise typer.Exit(exit_code(ends.values()))


def _specs(ctx: typer.Context, files: Sequence[Path], options: dict[str, Any]) -> list[dict[str, Any]]:
    """All jobs that the command line means, checked before any is sent."""
    import os

    from hocket.cli.after_dashes import after_dashes
    from hocket.cli.job_file import jobs_in, located
    from hocket.cli.job_spec import FieldProblem, job_spec
    from hocket.cli.login import login
    from hocket.cli.refusal import InputError

    command = after_dashes(ctx)
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


def _sent(client: Client, specs: Sequence[dict[str, Any]]) -> list[str]:
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
    from hocket.cli.job_rows import job_path
    from hocket.cli.refusal import InputError

    left = []
    for job_id in accepted:
        try:
            client.post(job_path(job_id, "stop"))
        except InputError:
            left.append(job_id)
    if left:
        return InputError(f"{why}; {len(left)} jobs had been accepted and could not be stopped: {', '.join(left[:5])}")
    if accepted:
        return InputError(f"{why}; nothing is submitted, {len(accepted)} that had been accepted were stopped")
    return InputError(why)
