"""A lock file beside a journal, with the name of its holder: one controller at a time appends to a journal.

The kernel releases the lock when the process dies. It is a separate file: SQLite would lose its locks on the database
if any other descriptor of it were closed.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

import msgspec
from msgspec import Struct

_MAX_BYTES = 4096  # of what a holder writes about itself


class Holder(Struct, frozen=True):
    """The process that holds a journal."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"the controller with pid {self.pid} on host '{self.host}' since {self.since}"


def this_process() -> bytes:
    """This process as a holder, encoded for the lock file."""
    since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), since))


def describe_holder(kept: bytes) -> str:
    """The holder in words, from the content of the lock file."""
    try:
        return str(msgspec.json.decode(kept, type=Holder))
    except msgspec.MsgspecError:
        return "another process, which has not written its name yet"


class Shared(Protocol):
    """A lock or session that a forked child would share with its parent, and must not keep when the parent dies."""

    def leave(self) -> None:
        """In a forked child: only close it."""


_shared: WeakSet[Shared] = WeakSet()


def close_in_children(shared: Shared) -> None:
    """From now on, every forked child closes this; the parent keeps it."""
    _shared.add(shared)


def _leave_all() -> None:
    for shared in list(_shared):
        shared.leave()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_all)


class AlreadyLocked(Exception):
    """Another process has the lock; the message says which."""


class LockFile:
    """Held from its creation until `release`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Take the lock, or raise AlreadyLocked at once."""
        import fcntl  # only where a controller runs: there is none on Windows

        self._path = path
        while True:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                kept = os.pread(self._descriptor, _MAX_BYTES, 0)
                self._close()
                raise AlreadyLocked(describe_holder(kept)) from error
            if self._is_at_its_path():
                break
            self._close()  # Its holder removed it between our opening and locking it.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, this_process(), 0)
        close_in_children(self)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            if self._is_at_its_path():
                self._path.unlink()  # before unlocking; a process that waits for this file will see that it is gone
            self._close()

    def leave(self) -> None:
        """In a forked child: close it without removing the file."""
        if self._descriptor >= 0:
            self._close()

    def _is_at_its_path(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
