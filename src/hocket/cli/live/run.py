"""`hocket run [options] -- COMMAND`: submit a job, follow its output, and end as it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.options import Home

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_rows import ListedJob

_UNKNOWN_CODE = 1  # of a job that failed without an exit code: its machine was lost …
_BROKEN_PIPE = 128 + signal.SIGPIPE
_SOON_S = 1.0  # A job that starts within this time is not reported to wait.


def run(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.toml | -- COMMAND…]", help="A command behind two dashes, or a file of one job."),
    ] = None,
    home: Home = None,
) -> None:
    """Submit a job, print its output, and end with its exit code.

    Takes the options of `hocket submit`; a command without --retries is not restarted. Ctrl-C asks the job to stop, as
    `hocket stop` does; a second Ctrl-C leaves at once, and the job goes on. Exit code: that of the program, 128 and the
    signal if it was killed, 5 if it missed its criterion, 3 if it was stopped or exceeded its --time, 130 after Ctrl-C.
    """
    from hocket.cli.live.bundle_upload import Bundles
    from hocket.cli.live.client import Client
    from hocket.cli.live.job_options import given_command, given_job_options
    from hocket.cli.live.submission import described_jobs, sent, warn_of_launchers, warn_of_missing_folders
    from hocket.cli.terminal.errors import InputError

    command, options = given_command(ctx), given_job_options(ctx)
    if command is not None:  # A user watches, and sees a crash: it is not retried.
        options = {"retries": "0"} | options
    with Bundles() as bundles, Client(home) as client:
        jobs = described_jobs(command, files or [], options, bundles, verb="run")
        if len(jobs) != 1 or "array" in jobs[0].spec:
            raise InputError("run follows one job; for several there is `hocket submit --wait`")
        warn_of_missing_folders(jobs)
        warn_of_launchers(jobs)
        (job,) = sent(client, jobs, bundles)
        typer.echo(f"hocket: job '{job}' is submitted", err=True)
        code = _followed(client, job)
    raise typer.Exit(code)


def _followed(client: Client, job: str) -> int:
    """Follow a job to its end; the exit code of the command."""
    from shlex import quote

    from hocket.cli.live.client import ControllerAway, ControllerRefused
    from hocket.cli.live.job_rows import row_in, shown
    from hocket.cli.live.logs import LogReader, follow_output
    from hocket.cli.live.waiting import retry_while_away
    from hocket.cli.terminal.errors import BAD_INPUT, INTERRUPTED

    follower = _Follower(client, job)
    attach = f"`hocket logs -f {quote(job)}` follows it again, `hocket stop {quote(job)}` stops it"
    with _interrupts(follower):
        try:
            row = row_in(retry_while_away(client, lambda: shown(client, job), on_away=follower.away))
            row = follow_output(client, job, LogReader(client, job), row, follower.look, follower.away)
            found = retry_while_away(client, lambda: shown(client, job), on_away=follower.away)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes nothing into that pipe.
            typer.echo(
                f"hocket: the output of job '{job}' cannot be written here any more; the job goes on: {attach}",
                err=True,
            )
            return _BROKEN_PIPE
        except KeyboardInterrupt:
            typer.echo(f"\nhocket: no longer following job '{job}', which goes on: {attach}", err=True)
            return INTERRUPTED
        except (ControllerAway, ControllerRefused) as error:
            typer.echo(f"hocket: cannot follow job '{job}' any more: {error}; the job may go on: {attach}", err=True)
            return BAD_INPUT
    return _exit_code(row, found, follower.interrupts > 0)


def _exit_code(row: ListedJob, found: dict[str, Any], interrupted: bool) -> int:
    from hocket.cli.live.job_rows import FAILED, WELL
    from hocket.cli.live.waiting import exit_code
    from hocket.cli.terminal.errors import INTERRUPTED

    if row.state not in WELL:
        reason = row.reason.removeprefix(f"{row.state}: ")
        typer.echo(f"hocket: job '{row.id}' {row.state}: {reason}", err=True)
    if row.state == FAILED:
        attempts = found.get("attempt_list") or [{}]
        code = attempts[-1].get("code")
        return code if isinstance(code, int) and code else _UNKNOWN_CODE
    return INTERRUPTED if interrupted and row.state not in WELL else exit_code([row.state])


class _Follower:
    """What is done between two looks at the job's output: pass on Ctrl-C, and say why nothing comes."""

    def __init__(self, client: Client, job: str) -> None:
        self.interrupts = 0
        self._client, self._job = client, job
        self._asked = self._is_away = False
        self._shown_text = ""

    def look(self, row: ListedJob) -> None:
        """Between two looks."""
        self._is_away = False
        if self.interrupts and not self._asked and not row.is_over:
            self._ask_to_stop()
        waits = row.state in ("waiting", "held", "paused") and row.waited_s + row.ran_s > _SOON_S
        text = f"{row.state}: {row.reason}" if waits or row.state == "held" else ""
        if text and text != self._shown_text:
            typer.echo(f"hocket: job '{self._job}' is {text.replace('waits: ', '', 1)}", err=True)
        self._shown_text = text or self._shown_text

    def away(self, error: Exception) -> None:
        """The controller does not answer."""
        if not self._is_away:
            typer.echo(f"hocket: {error}; trying again for two minutes", err=True)
        self._is_away = True

    def _ask_to_stop(self) -> None:
        from hocket.cli.live.client import ControllerAway
        from hocket.cli.live.job_rows import send_job_request

        try:
            send_job_request(self._client, "stop", [self._job])
        except ControllerAway as error:  # It is asked again at the next look.
            self.away(error)
            return
        self._asked = True
        typer.echo(f"\nhocket: job '{self._job}' is asked to stop; Ctrl-C again leaves at once", err=True)


@contextmanager
def _interrupts(follower: _Follower) -> Iterator[None]:
    """Within this, the first Ctrl-C is noted for the follower, in the middle of whatever; the second is raised."""

    def note(_number: int, _frame: object) -> None:
        follower.interrupts += 1
        if follower.interrupts > 1:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # We are in the background of a script.
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
