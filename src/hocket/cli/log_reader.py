"""Reads a job's output through the API, attempt by attempt, though old parts of it may be gone by then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.cli.client import Answer, Client

PART = 1 << 20
_TAIL = 1 << 16  # the first look back for the last lines
_FARTHEST = 1 << 28  # and the last
_FIRST_S, _LAST_S = 0.1, 1.0  # between looks at a job that prints nothing


class LogReader:
    """Where one is in the output of a job. With `only`, of that attempt; without, of each in turn."""

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
        """Stand before the first attempt that has left something."""
        self.attempt = self._after(0, self.last_attempt())
        return self.attempt > 0

    def _next(self) -> bool:
        last = self.last_attempt()
        if last <= self.attempt:
            return False
        # The attempt may have printed its last words since they were asked for, and before the next one began.
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

    def _ask(self, attempt: int, offset: int, limit: int) -> Answer:
        from hocket.cli.job_rows import job_path

        return self._client.get(job_path(self._job, "log"), offset=offset, limit=limit, attempt=attempt)


def _last_lines(data: bytes, count: int) -> bytes:
    parts = data.split(b"\n")  # Not at carriage returns: what a progress bar writes over is one line.
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return b"".join(lines[-count:]) if count else b""


def _note(text: str) -> None:
    """For people only, and beside the output, which stays as it was printed."""
    if sys.stderr.isatty():
        print(f"— hocket: {text} —", file=sys.stderr, flush=True)
