"""The controller's side of `history_worker.py`: starts that process when needed, and asks it one thing at a time."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic

import msgspec

from hocket.service.history_worker import HistoryAnswer, HistoryRequest, HistorySource
from hocket.service.tokens import HOME, Role, Token

_log = logging.getLogger("hocket.service")
_PATIENCE_S = 60.0  # for an answer; the process may have to start first
_LEAVE_S = 5.0  # for it to end
_EVERY_S = 30.0  # between looks whether there are many cycles that are not indexed, or a page is open
_NEVER_S = 1e11  # No cycle is so late: nothing is counted.
_BEHIND = 5000  # cycles that are not indexed, after which that is done before they are asked for


class HistoryUnavailable(RuntimeError):
    """The process does not answer; says why."""


class HistoryProcess:
    """Has past states looked up by `history_worker.py`, one request at a time. For any thread."""

    def __init__(self, source: HistorySource, cycles: Callable[[], int] = lambda: 0) -> None:
        """`cycles` tells how many are in the journal."""
        self._source, self._cycles = source, cycles
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._indexed = 0
        self._over, self._wakes = Flag(), Flag()
        self._expected_s = -inf  # when a page was last known to be open
        self._thread = Thread(target=self._keep_up, name="history", daemon=True)

    def start(self) -> None:
        """Have it index cycles as they come, from now on: a few thousand at a time."""
        self._thread.start()

    def expect(self) -> None:
        """A page is open, which may ask soon: have the process ready, for to start it takes as long as many answers."""
        before, self._expected_s = self._expected_s, monotonic()
        if self._expected_s - before > _EVERY_S:
            self._wakes.set()

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._wakes.set()
        with self._lock:
            self._end()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def ask(self, request: HistoryRequest) -> tuple[int, bytes]:
        """Status and body of the answer. Raises HistoryUnavailable."""
        with self._lock:
            if self._over.is_set():
                raise HistoryUnavailable("the controller is going down")
            line = msgspec.json.encode(request) + b"\n"
            fresh = self._process is None or self._process.poll() is not None
            try:
                return self._exchange(line)
            except (OSError, EOFError) as error:
                self._end()
                if fresh:
                    raise HistoryUnavailable(f"the history cannot be read: {error}") from error
            try:  # It had ended because nothing was asked, in this very moment; or it was killed.
                return self._exchange(line)
            except (OSError, EOFError) as error:
                self._end()
                raise HistoryUnavailable(f"the history cannot be read: {error}") from error

    def _exchange(self, line: bytes) -> tuple[int, bytes]:
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()
        until = monotonic() + _PATIENCE_S
        head = msgspec.json.decode(self._read(process, until, lambda rest: rest.find(b"\n") + 1), type=HistoryAnswer)
        body = self._read(process, until, lambda rest: head.length if len(rest) >= head.length else 0, head.length == 0)
        self._indexed = head.indexed
        return head.status, body

    def _read(
        self, process: subprocess.Popen[bytes], until: float, enough: Callable[[bytes], int], is_empty: bool = False
    ) -> bytes:
        """So much of what it says as is enough."""
        assert process.stdout is not None
        parts, fd = [self._rest], process.stdout.fileno()
        while not is_empty and not enough(whole := b"".join(parts)):
            parts = [whole]
            if not select.select([fd], [], [], max(0.0, until - monotonic()))[0]:
                raise TimeoutError(f"there was no answer within {_PATIENCE_S:g} s")
            if not (some := os.read(fd, 1 << 20)):
                raise EOFError("its process ended")
            parts.append(some)
        whole = b"".join(parts)
        length = 0 if is_empty else enough(whole)
        self._rest = whole[length:]
        return whole[:length]

    def _started(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and process.poll() is None:
            return process
        self._end()
        # -P: no module is imported from the working directory.
        command = [sys.executable, "-P", "-m", "hocket.service.history_worker"]
        self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self._source) + b"\n")
        return process

    def _end(self) -> None:
        process, self._process, self._rest = self._process, None, b""
        if process is None:
            return
        process.kill()  # What it writes is whole or not there.
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # It has not read all.
                    pipe.close()

    def _keep_up(self) -> None:
        anyone = Token(HOME, Role.ADMIN, "")
        while True:
            self._wakes.wait(_EVERY_S)
            self._wakes.clear()
            if self._over.is_set():
                return
            if self._cycles() - self._indexed < _BEHIND and monotonic() - self._expected_s > _EVERY_S:
                continue
            try:
                self.ask(HistoryRequest(anyone, buckets=1, since_s=_NEVER_S))
            except HistoryUnavailable as error:
                if not self._over.is_set():
                    _log.warning("%s", error)
