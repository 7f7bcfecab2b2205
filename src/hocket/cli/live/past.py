"""How things stood, for commands with `--at`: after a cycle of the journal, some time ago, or at a date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hocket.cli.live.client import Client, ControllerAnswer

_PATIENCE_S = 120.0  # for a long journal to be read for the first time
_AGAIN_S = 0.5


def past(client: Client, at: str, **query: object) -> ControllerAnswer:
    """What the controller says of that moment, and tells on stderr which it was. Raises InputError."""
    from hocket.cli.terminal.console import clock

    cycle, at_s = _moment(at)
    answer = _retry_while_history_is_read(
        client, f"/v1/at/{cycle}" if cycle else "/v1/at", {**query, "time": "" if cycle else at_s}
    )
    found = answer.json()
    typer.echo(f"after cycle {found['cycle']:,} of {found['last']:,}, at {clock(found['at_s'])}", err=True)
    return answer


def _moment(text: str) -> tuple[int, float]:
    """The number of a cycle, or 0 and a time in seconds since 1970. Raises InputError."""
    import time
    from datetime import datetime

    from hocket.cli.terminal.errors import InputError
    from hocket.job_input.units import BadValue, seconds

    stripped = text.strip()
    if stripped.isascii() and stripped.isdecimal() and len(stripped) <= 15 and int(stripped):
        return int(stripped), 0.0
    try:
        if stripped[4:5] == "-":
            return 0, datetime.fromisoformat(stripped).timestamp()
        if stripped[-1:].isalpha():  # A number without a unit could be meant as either.
            return 0, time.time() - seconds(stripped)
    except (BadValue, ValueError, OverflowError, OSError):
        pass
    rule = "the number of a cycle, a time ago such as 2h, or a date such as '2026-11-17 10:00'"
    raise InputError(f"--at must be {rule}, not '{text[:60]}'")


def _retry_while_history_is_read(client: Client, path: str, query: dict[str, object]) -> ControllerAnswer:
    """Ask again while the journal is being read for the first time."""
    import time

    from hocket.cli.live.client import ControllerRefused

    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return client.get(path, **query)
        except ControllerRefused as error:
            if error.status != 503 or "ask again" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_AGAIN_S)
