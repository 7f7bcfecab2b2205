"""`hocket down`: the end of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson, Home

if TYPE_CHECKING:
    from hocket.cli.live.client import Client

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
    from hocket.cli.units import BadValue, seconds

    try:
        grace_s = seconds(grace, zero=True)
    except BadValue as error:
        raise InputError(f"--grace {error}") from None
    with Client(home) as client:
        pid = int(client.get("/v1/health").json().get("pid") or 0)
        client.post("/v1/down", {"grace_s": grace_s})
        where = client.home
    with Client(where, _LOOK_S) as client:
        if not _is_gone(client, pid, grace_s + _MARGIN_S):
            raise InputError(f"the controller in {where} still stops its jobs; see {where / 'log'}")
    if as_json:
        import msgspec

        print(msgspec.json.encode({"down": True, "home": str(where)}).decode())
    else:
        print(f"the controller in {where} is down")


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
    """Whether a process of ours has that number, and is not just waiting to be buried."""
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
