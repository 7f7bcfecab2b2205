"""`hocket pause`, `hocket resume`, `hocket stop`: what a user wishes for jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.live_options import Home, JobNames, OwnerFilter
from hocket.cli.options import AsJson

if TYPE_CHECKING:
    from hocket.cli.client import Client

_AT_A_TIME = 64

Every = Annotated[bool, typer.Option("--all", "-a", help="All live jobs; with --owner, all of that owner.")]


def pause(
    job: JobNames = None, every: Every = False, owner: OwnerFilter = "", home: Home = None, as_json: AsJson = False
) -> None:
    """Let jobs save their state and leave their devices, until they are resumed."""
    _wish("pause", job or [], every, owner, home, as_json)


def resume(
    job: JobNames = None, every: Every = False, owner: OwnerFilter = "", home: Home = None, as_json: AsJson = False
) -> None:
    """Let paused jobs go on as soon as there is room."""
    _wish("resume", job or [], every, owner, home, as_json)


def stop(
    job: JobNames = None, every: Every = False, owner: OwnerFilter = "", home: Home = None, as_json: AsJson = False
) -> None:
    """End jobs for good; they may save their state first."""
    _wish("stop", job or [], every, owner, home, as_json)


def _wish(wish: str, names: list[str], every: bool, owner: str, home: Path | None, as_json: bool) -> None:
    """Find out whom it is for, then ask the controller for each; what one cannot do does not keep the others."""
    from hocket.cli.client import Client
    from hocket.cli.job_rows import meant
    from hocket.cli.refusal import BAD_INPUT

    with Client(home) as client:
        found = meant(client, names, every=every, owner=owner)
    answers = _answers(home, found, wish)
    if as_json:
        import msgspec

        print(msgspec.json.encode({"jobs": answers}).decode())
    refused = False
    for answer in answers:
        if "refused" in answer:
            refused = True
            typer.echo(f"hocket: {answer['refused']}", err=True)
        elif not as_json:
            print(f"{answer['id']} {answer['state']}")
    if refused:
        raise typer.Exit(BAD_INPUT)


def _answers(home: Path | None, found: list[str], wish: str) -> list[dict[str, str]]:
    """What the controller says to each, in order. Many are asked at a time: wishes of one moment make one cycle."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import local

    from hocket.cli.client import Client, Refused
    from hocket.cli.watch import watching

    own = local()
    clients: list[Client] = []
    heard: list[str] = []

    def ask(job_id: str) -> dict[str, str]:
        if not hasattr(own, "client"):
            own.client = Client(home)
            clients.append(own.client)
        try:
            return _asked(own.client, job_id, wish)
        except Refused as error:
            return {"id": job_id, "refused": str(error)}
        finally:
            heard.append(job_id)

    pool = ThreadPoolExecutor(min(_AT_A_TIME, max(len(found), 1)))
    try:
        with watching(wish, len(found), lambda: len(heard)):
            return list(pool.map(ask, found))
    finally:
        pool.shutdown(cancel_futures=True)
        for client in clients:
            client.close()


def _asked(client: Client, job_id: str, wish: str) -> dict[str, str]:
    from urllib.parse import quote

    from hocket.cli.job_rows import job_path
    from hocket.cli.login import login

    found: dict[str, str] = client.post(f"{job_path(job_id, wish)}?by={quote(login())}").json()
    return found
