"""One holder at a time, by a lock on a file beside the journal. The kernel takes the lock off a process that dies.

It is a file of its own: SQLite would lose its locks on the database if any other descriptor of it were closed.
"""

from __future__ import annotations

import os
from pathlib import Path

from hocket.control.journal import holder
from hocket.control.journal.forked import not_for_children

_MOST_BYTES = 4096  # of what a holder says about itself


class Taken(Exception):
    """Somebody else has the lock; says who."""


class LockFile:
    """Held from the moment it is made until `release`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Take the lock, or raise Taken at once."""
        import fcntl  # only where a controller runs: there is none on Windows

        self._path = path
        while True:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                kept = os.pread(self._descriptor, _MOST_BYTES, 0)
                self._close()
                raise Taken(holder.named(kept)) from error
            if self._is_at_its_path():
                break
            self._close()  # Its holder removed it between our opening and locking it.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, holder.encode(holder.this_process()), 0)
        not_for_children(self)

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            if self._is_at_its_path():
                self._path.unlink()  # while it is ours; whoever waits for this file will see that it is gone
            self._close()

    def leave(self) -> None:
        """In a forked child: have nothing to do with it."""
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
