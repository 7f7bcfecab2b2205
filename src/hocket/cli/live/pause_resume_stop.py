"""`hocket pause`, `hocket resume`, `hocket stop`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.options import AsJson, Home, JobNames, OwnerFilter

Every = Annotated[bool, typer.Option("--all", "-a", help="All live jobs; with --owner, all of that owner.")]


def pause(
    job: JobNames = None, every: Every = False, owner: OwnerFilter = "", home: Home = None, as_json: AsJson = False
) -> None:
    """Let jobs save their state and leave their devices, until they are resumed."""
    _request("pause", job or [], every, owner, home, as_json)


def resume(
    job: JobNames = None, every: Every = False, owner: OwnerFilter = "", home: Home = None, as_json: AsJson = False
) -> None:
    """Let paused jobs go on as soon as there is room."""
    _request("resume", job or [], every, owner, home, as_json)


def stop(
    job: JobNames = None, every: Every = False, owner: OwnerFilter = "", home: Home = None, as_json: AsJson = False
) -> None:
    """End jobs for good; they may save their state first."""
    _request("stop", job or [], every, owner, home, as_json)


def _request(request: str, names: list[str], every: bool, owner: str, home: Path | None, as_json: bool) -> None:
    """Ask the controller, once for all of them; what one cannot do does not keep the others."""
    import msgspec

    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import send_job_request
    from hocket.cli.terminal.errors import BAD_INPUT, InputError

    if every and names:
        raise InputError("give names or --all, not both")
    if not every and not names:
        raise InputError("give the names of jobs, a pattern such as 'sweep-*', or --all")
    with Client(home) as client:
        answers = send_job_request(client, request, names, every=every, owner=owner)
    if as_json:
        print(msgspec.json.encode({"jobs": answers}).decode())
    elif not answers:
        typer.echo(f"hocket: no live jobs{f' of {owner!r}' if owner else ''}", err=True)
    refused = False
    for answer in answers:
        if "refused" in answer:
            refused = True
            typer.echo(f"hocket: {answer['refused']}", err=True)
        elif not as_json:
            print(f"{answer['id']} {answer['state']}")
    if refused:
        raise typer.Exit(BAD_INPUT)
