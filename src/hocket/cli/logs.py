"""`hocket logs JOB`: what a job printed, byte for byte, one attempt after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.live_options import Home, JobName

if TYPE_CHECKING:
    from hocket.cli.client import Client
    from hocket.cli.log_reader import LogReader


def logs(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over, through restarts.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only the last N lines of the last attempt.")
    ] = None,
    attempt: Annotated[int, typer.Option(min=0, metavar="N", help="Only this attempt, from 1; 0: all of them.")] = 0,
    home: Home = None,
) -> None:
    """Print what a job printed: all its attempts, one after the other, or one of them."""
    import os
    import sys

    from hocket.cli.client import Client

    try:
        with Client(home) as client:
            _print(client, job, follow, tail, attempt)
    except BrokenPipeError:
        # Whoever read has enough. Nothing may be flushed into that pipe when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        if not follow:
            raise
        # That is how following ends: no error, no message.


def _print(client: Client, job: str, follow: bool, tail: int | None, attempt: int) -> None:
    from functools import partial

    from hocket.cli.job_rows import row_in, shown
    from hocket.cli.log_reader import LogReader
    from hocket.cli.waiting import patiently

    row = row_in(shown(client, job))
    reader = LogReader(client, job, attempt)
    if attempt and not (follow and not row.is_over) and attempt > (last := reader.last_attempt()):
        from hocket.cli.refusal import InputError

        raise InputError(f"--attempt must be one of the {last} that job '{job}' has had, not {attempt}")
    if tail is not None:
        _write(reader.last_lines(tail))
    while True:
        if not follow:
            _written(reader)
            if not reader.attempt:
                typer.echo(f"hocket: job '{job}' has not run; it is {row.state}", err=True)
            return
        is_over = row.is_over or patiently(client, reader.is_passed)
        if not patiently(client, partial(_written, reader)):
            if is_over:
                return  # It was over before this look, so there is nothing that a next one could find.
            reader.rest()
        row = row_in(patiently(client, partial(shown, client, job)))


def _written(reader: LogReader) -> bool:
    any_came = False
    for part in reader.parts():
        _write(part)
        any_came = True
    return any_came


def _write(data: bytes) -> None:
    import sys

    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
