"""`hocket logs JOB`: what a job printed, byte for byte, one attempt after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import Home, JobName

if TYPE_CHECKING:
    from hocket.cli.live.client import Client, ControllerAnswer
    from hocket.cli.live.job_rows import ListedJob

PART = 1 << 20
_TAIL = 1 << 16  # the first look back for the last lines
_FARTHEST = 1 << 28  # and the last
_FIRST_S, _LAST_S = 0.1, 1.0  # between looks at a job that prints nothing


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

    from hocket.cli.live.client import Client

    try:
        with Client(home) as client:
            _print(client, job, follow, tail, attempt)
    except BrokenPipeError:
        # The reader has enough. Nothing may be flushed into that pipe when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        if not follow:
            raise
        # That is how following ends: no error, no message.


def _print(client: Client, job: str, follow: bool, tail: int | None, attempt: int) -> None:
    from hocket.cli.live.job_rows import row_in, shown

    row = row_in(shown(client, job))
    reader = LogReader(client, job, attempt)
    if attempt and not (follow and not row.is_over) and attempt > (last := reader.last_attempt()):
        from hocket.cli.terminal.errors import InputError

        raise InputError(f"--attempt must be one of the {last} that job '{job}' has had, not {attempt}")
    if tail is not None:
        _write(reader.last_lines(tail))
    if follow:
        follow_output(client, job, reader, row)
        return
    _written(reader)
    if not reader.attempt:
        typer.echo(f"hocket: job '{job}' has not run; it is {row.state}", err=True)


def follow_output(
    client: Client,
    job: str,
    reader: LogReader,
    row: ListedJob,
    look: Callable[[ListedJob], None] = lambda _row: None,
    on_away: Callable[[Exception], None] = lambda _error: None,
) -> ListedJob:
    """Print what the job prints until it is over, or the only attempt that is read; gives the job as it was then.

    `look` is called between two reads.
    """
    from functools import partial

    from hocket.cli.live.job_rows import row_in, shown
    from hocket.cli.live.waiting import retry_while_away

    while True:
        look(row)
        is_over = row.is_over or retry_while_away(client, reader.is_passed, on_away=on_away)
        if not retry_while_away(client, partial(_written, reader), on_away=on_away):
            if is_over:
                return row  # It was over before this look, so there is nothing that a next one could find.
            reader.rest()
        row = row_in(retry_while_away(client, partial(shown, client, job), on_away=on_away))


def _written(reader: LogReader) -> bool:
    any_came = False
    for part in reader.parts():
        _write(part)
        any_came = True
    return any_came


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class LogReader:
    """A position in the output of a job. With `only`, of that attempt; without, of each in turn."""

    def __init__(self, client: Client, job: str, only: int = 0) -> None:
        self._client, self._job, self._only = client, job, only
        self.attempt = only  # 0: none has been read yet
        self.offset = 0
        self._pause_s = _FIRST_S

    def parts(self) -> Iterator[bytes]:
        """All there is by now beyond what was read, and then what later attempts printed."""
        while True:
            if not self.attempt and not self._begin():
                return
            yield from self._rest_of_attempt()
            if self._only or not self._next():
                return

    def last_attempt(self) -> int:
        """The number of the last one that there was; 0 if it never ran."""
        return self._ask(0, 0, 1).number("X-Attempt", 0)

    def last_lines(self, count: int) -> bytes:
        """The last lines of the last attempt; reading goes on behind them."""
        size, start = _TAIL, -1
        while True:
            answer = self._ask(self._only, -size, min(size, PART))
            self.attempt, self.offset = answer.number("X-Attempt", 0), answer.number("X-Next-Offset", 0)
            begins = self.offset - len(answer.body)
            data = b"".join((answer.body, *self._rest_of_attempt())) if self.attempt else b""
            if begins <= 0 or begins == start or size >= _FARTHEST or data.count(b"\n") > count:
                return _last_lines(data, count)
            size, start = size * 4, begins

    def is_passed(self) -> bool:
        """Whether a later attempt has begun than the only one that is read."""
        return bool(self._only) and self.last_attempt() > self._only

    def rest(self) -> None:
        """Wait a moment: a short one if something came lately."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.3, _LAST_S)

    def _begin(self) -> bool:
        """Go to the first attempt that has output."""
        self.attempt = self._after(0, self.last_attempt())
        return self.attempt > 0

    def _next(self) -> bool:
        last = self.last_attempt()
        if last <= self.attempt:
            return False
        # The attempt may have printed more after the last read, and before the next one began.
        if self._ask(self.attempt, self.offset, 1).body:
            return True
        _note(f"attempt {self.attempt} ends here; attempt {last} follows")
        self.attempt, self.offset = self._after(self.attempt, last), 0
        return True

    def _after(self, attempt: int, last: int) -> int:
        """The next attempt with an output: some numbers stand for attempts that were prepared and never began."""
        for number in range(attempt + 1, last):
            if self._ask(number, 0, 1).number("X-Attempt", 0) == number:
                return number
        return last

    def _rest_of_attempt(self) -> Iterator[bytes]:
        """Up to where it ends now: a job may print faster than we read."""
        end = self._ask(self.attempt, -1, 1).number("X-Next-Offset", 0)
        while self.offset < end:
            answer = self._ask(self.attempt, self.offset, PART)
            if not answer.body:
                return
            self._pause_s = _FIRST_S
            next_offset = answer.number("X-Next-Offset", self.offset + len(answer.body))
            gone = next_offset - len(answer.body) - self.offset
            if gone > 0:
                _note(f"{gone:,} bytes are no longer kept")
            self.offset = next_offset
            yield answer.body

    def _ask(self, attempt: int, offset: int, limit: int) -> ControllerAnswer:
        from hocket.cli.live.job_rows import job_path

        return self._client.get(job_path(self._job, "log"), offset=offset, limit=limit, attempt=attempt)


def _last_lines(data: bytes, count: int) -> bytes:
    parts = data.split(b"\n")  # Not at carriage returns: what a progress bar writes over is one line.
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return b"".join(lines[-count:]) if count else b""


def _note(text: str) -> None:
    """Print a note to stderr on a terminal; the output itself stays as the job printed it."""
    if sys.stderr.isatty():
        print(f"— hocket: {text} —", file=sys.stderr, flush=True)
