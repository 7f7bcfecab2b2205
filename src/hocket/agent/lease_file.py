"""How long the runs of a node may go on without an answer from the controller: written by the agent, read by sidecars.

It is a time of the clock that counts on while the machine sleeps, so that nothing goes on when it wakes. Sidecars read
it by themselves: an agent that is stopped or dead cannot tell them anything. That clock begins anew when the machine
boots, so the file says of which boot its time is; sidecars, which do not outlive it, need not look at that.
"""

from __future__ import annotations

import os
import struct
import time

NAME = "lease"  # in the agent's state folder
_TIME = struct.Struct("<d")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LONGEST_ID = 64  # bytes
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_s() -> float:
    """Seconds since this machine started, those in which it slept among them."""
    return time.clock_gettime(_CLOCK)


def boot_id() -> str:
    """What tells this boot of the machine from all others; empty if that is not known."""
    try:
        with open(_BOOT_ID, encoding="ascii", errors="replace") as file:
            return file.read(_LONGEST_ID).strip()
    except OSError:
        return ""


def write_lease(path: str, until_s: float, boot: str = "") -> None:
    """Runs may go on until this time of `boot_s`, in the boot of this id. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, _TIME.pack(until_s) + boot.encode("ascii", "replace"), 0)
    finally:
        os.close(fd)


def read_lease(path: str) -> float | None:
    """Until when runs may go on; None if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        kept = os.pread(fd, _TIME.size, 0)
    finally:
        os.close(fd)
    return float(_TIME.unpack(kept)[0]) if len(kept) == _TIME.size else None


def boot_of_lease(path: str) -> str:
    """The id of the boot in which it was written; empty if that is not known."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.pread(fd, _LONGEST_ID, _TIME.size).decode("ascii", "replace")
    finally:
        os.close(fd)
