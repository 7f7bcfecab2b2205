"""`hocket answer JOB`: the present answer of a query that runs as a job, or its last one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson, Home, JobName

if TYPE_CHECKING:
    from hocket.cli.answer_table import ShownAnswer
    from hocket.cli.live.client import Client

_FIRST_S, _LAST_S = 0.1, 1.0  # between looks at a query that has nothing new


def answer(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the query is over, through restarts.")
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Print the present answer of a query, with the intervals of its estimates; with -f, each new one."""
    from hocket.cli.live.client import Client

    try:
        with Client(home) as client:
            if follow:
                _follow(client, job, as_json)
            else:
                _print(_asked(client, job), as_json)
    except KeyboardInterrupt:
        if not follow:
            raise
        # That is how following ends: no error, no message.


def _asked(client: Client, job: str) -> ShownAnswer:
    import msgspec

    from hocket.cli.answer_table import ShownAnswer
    from hocket.cli.live.job_rows import job_path, row_in, shown

    row = row_in(shown(client, job))  # An unknown name is said to be one.
    return msgspec.json.decode(client.get(job_path(row.id, "answer")).body, type=ShownAnswer)


def _follow(client: Client, job: str, as_json: bool) -> None:
    from hocket.cli.live.client import ControllerRefused
    from hocket.cli.live.job_rows import row_in, shown
    from hocket.cli.live.waiting import retry_while_away

    last: ShownAnswer | None = None
    pause_s = _FIRST_S
    while True:
        row = row_in(retry_while_away(client, lambda: shown(client, job)))
        try:
            found = retry_while_away(client, lambda: _asked(client, job))
        except ControllerRefused as error:
            if error.status != 404 or row.is_over:
                raise
            found = None
        # An attempt that goes on from a state repeats what was known: that is no news.
        if found is not None and (last is None or found.fraction > last.fraction):
            _print(found, as_json)
            last, pause_s = found, _FIRST_S
        if row.is_over:  # It was over before this look, so there is nothing that a next one could find.
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, _LAST_S)


def _print(found: ShownAnswer, as_json: bool) -> None:
    import msgspec

    from hocket.cli.answer_table import answer_table, in_one_line
    from hocket.cli.terminal.console import console

    if as_json:
        print(msgspec.json.encode(found).decode(), flush=True)
        return
    console().print(answer_table(found))
    typer.echo(in_one_line(found), err=True)
