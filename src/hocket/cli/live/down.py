"""`hocket down`: the end of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson, Home

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import ListedJob

_MOST_NAMED = 5
_MARGIN_S = 60.0  # beyond the grace, to kill what did not leave and to close the journal
_EVERY_S = 0.1
_LOOK_S = 2.0  # for an answer of one that is about to go


def down(
    grace: Annotated[str, typer.Option(metavar="30s", help="How long jobs may take to save their state.")] = "30s",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Stop every job, which keeps its checkpoint, and then the controller. `hocket up` goes on from there."""
    from hocket.cli.live.client import Client
    from hocket.cli.terminal.errors import InputError
    from hocket.job_input.units import BadValue, seconds

    try:
        grace_s = seconds(grace, zero=True)
    except BadValue as error:
        raise InputError(f"--grace {error}") from None
    with Client(home) as client:
        pid = int(client.get("/v1/health").json().get("pid") or 0)
        unsaved = _running(client)
        if not as_json:
            _print_unsaved(unsaved, grace)
        client.post("/v1/down", {"grace_s": grace_s})
        where = client.home
    with Client(where, _LOOK_S) as client:
        if not _is_gone(client, pid, grace_s + _MARGIN_S):
            raise InputError(f"the controller in {where} still stops its jobs; see {where / 'log'}")
    if as_json:
        import msgspec

        jobs = [{"id": row.id, "saved_s": row.saved_s} for row in unsaved]
        print(msgspec.json.encode({"down": True, "home": str(where), "running": jobs}).decode())
    else:
        print(f"the controller in {where} is down")


def _running(client: Client) -> list[ListedJob]:
    """The jobs that lose work unless they save it now: those that run, the longest without a save first."""
    from hocket.cli.live.client import ControllerRefused
    from hocket.cli.live.job_rows import rows

    try:
        found = rows(client)
    except ControllerRefused:
        return []  # A controller in trouble can be stopped all the same.
    return sorted((row for row in found if row.state == "running"), key=lambda row: row.saved_s or 0.0)


def _print_unsaved(running: list[ListedJob], grace: str) -> None:
    """Say what each job has saved so far: what it does not save now is lost."""
    from hocket.cli.terminal.console import clock

    for row in running[:_MOST_NAMED]:
        last = f"saved its state last at {clock(row.saved_s)}"
        saved = last if row.saved_s is not None else "has not saved its state yet"
        print(f"{row.id} {saved}; it has {grace} to save it now", flush=True)
    if (more := len(running) - _MOST_NAMED) > 0:
        print(f"and {more} more running job{'s' if more > 1 else ''}", flush=True)


def _is_gone(client: Client, pid: int, patience_s: float) -> bool:
    """Wait for the process, which outlives its API: it may hold the journal a moment longer."""
    import time

    from hocket.cli.live.client import ControllerAway, ControllerRefused

    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        try:
            client.get("/v1/health")
        except (ControllerAway, ControllerRefused):
            if not _lives(pid):
                return True
        client.close()
        time.sleep(_EVERY_S)
    return False


def _lives(pid: int) -> bool:
    """Whether a process of ours has that number, and is no zombie."""
    import os
    from pathlib import Path

    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:  # Another's, or no /proc: its API does not answer, and that must do.
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
