"""Writes log lines to stderr and never waits for it, whatever that is: a file, a terminal, a pipe that is not read.

The thread that logs writes the line itself, so lines are in order, and none is lost in a buffer when the process ends
or forks. What cannot be written is dropped; before the next line that can be, one says how many are missing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import stat
from contextlib import suppress
from typing import Any

_PATIENCE_MS = 100  # for a reader that is slow; one that does not read at all is waited for once
FILE_BYTES = 32 << 20  # of a log file, until it becomes `log.1`
_FULL = ".1"


class StderrHandler(logging.StreamHandler[Any]):
    """If stderr is `file`, that becomes `log.1` when it has so many bytes. Several processes may write to it."""

    def __init__(self, file: str | None = None, most_bytes: int = FILE_BYTES) -> None:
        super().__init__()
        self._file = self._own(file)
        self._most_bytes = most_bytes
        self._missing = 0  # lines since the last that was written
        self._is_cut = False  # that one lacks its end

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it as missing."""
        try:
            line = f"{self.format(record)}\n"
        except Exception:  # a bug in the call
            self.handleError(record)
            return
        try:
            fd = self.stream.fileno()
        except AttributeError:  # None: it was closed when the process began.
            return
        except (OSError, ValueError):  # It is in memory, or closed.
            with suppress(OSError, ValueError):
                self.stream.write(line)
                self.flush()
            return
        self._rotate(fd)
        gap = self._gap() if self._missing else ""
        if self._put(fd, f"{gap}{line}".encode(errors="backslashreplace")):
            self._missing = 0
        else:
            self._missing += 1

    def _own(self, file: str | None) -> str | None:
        """The file, if stderr is that: or was until a moment ago, when another process renamed it."""
        if file is None:
            return None
        path = os.path.realpath(file)
        with suppress(AttributeError, OSError, ValueError):
            if _is_one_of(os.fstat(self.stream.fileno()), path, path + _FULL):
                return path
        return None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Show a bug in a call, such as a wrong format, unless stderr is not read."""
        with suppress(AttributeError, OSError, ValueError):
            if _has_room(self.stream.fileno(), 0):
                super().handleError(record)

    def _gap(self) -> str:
        about = {"name": "hocket", "levelno": logging.WARNING, "levelname": "WARNING", "args": (self._missing,)}
        said = logging.makeLogRecord({**about, "msg": "lines missing here, for they could not be written: %d"})
        return f"{chr(10) if self._is_cut else ''}{self.format(said)}\n"

    def _put(self, fd: int, data: bytes) -> bool:
        """Write as much as can be written without waiting; whether that was all."""
        rest, patience_ms = memoryview(data), 0 if self._missing else _PATIENCE_MS
        with suppress(OSError):  # a full disk, or a pipe that is closed
            # Where there is room at all, there is room for PIPE_BUF bytes. A file takes a line as one piece.
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            most = len(data) if is_file else select.PIPE_BUF
            while rest and (is_file or _has_room(fd, patience_ms)):
                rest = rest[os.write(fd, rest[:most]) :]
        if len(rest) < len(data):
            self._is_cut = bool(rest)
        return not rest

    def _rotate(self, fd: int) -> None:
        """Go on in a new file when this one is full, or when another process has renamed it."""
        if self._file is None:
            return
        with suppress(OSError):  # The folder cannot be written, or another process is at it: the next line tries again.
            here = os.fstat(fd)
            if here.st_size < self._most_bytes and _is_one_of(here, self._file):
                return
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                if _is_one_of(here, self._file):
                    os.replace(self._file, self._file + _FULL)
                new = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
            try:
                for standard in {1, 2, fd}:  # stdout may be the same file
                    if standard == fd or os.path.samestat(os.fstat(standard), here):
                        os.dup2(new, standard)
            finally:
                os.close(new)


def _has_room(fd: int, wait_ms: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(wait_ms))  # also if it is closed: then writing raises


def _is_one_of(file: os.stat_result, *paths: str) -> bool:
    for path in paths:
        with suppress(FileNotFoundError):
            if os.path.samestat(file, os.stat(path)):
                return True
    return False
