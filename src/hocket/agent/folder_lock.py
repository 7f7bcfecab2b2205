"""A folder that belongs to one process as long as it lives: a locked file in it, which holds the process id."""

from __future__ import annotations

import fcntl
import os
import time

LOCK = "lock"


class InUse(Exception):
    """Another process has the folder."""


def take(folder: str, taken: str, patience_s: float) -> int:
    """Take the folder for the rest of this process's life, or raise InUse; `taken` says so, but for the process."""
    fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                holder = os.read(fd, 32).decode().strip()
                os.close(fd)
                raise InUse(f"{taken}: process {holder}") from None
            time.sleep(0.02)
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd
