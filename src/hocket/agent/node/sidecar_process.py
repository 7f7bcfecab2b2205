"""A sidecar as the process that it is: launched by this agent, or found alive by one that came later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from subprocess import Popen

from hocket.agent import run_folder

_PATIENCE_S = 1.0


class SidecarProcess:
    """`fd` can be read once it has ended."""

    def __init__(self, pid: int, fd: int, child: Popen[bytes] | None) -> None:
        self.pid, self.fd, self._child = pid, fd, child

    def kill(self) -> None:
        """End it at once; its job dies with it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.fd, signal.SIGKILL)

    def close(self) -> None:
        """Let go of one that has ended."""
        os.close(self.fd)
        if self._child is not None:
            self._child.wait()


def launched(folder: str, secrets: dict[str, str]) -> SidecarProcess:
    """Start one for a run folder."""
    child = run_folder.launch(folder, secrets)
    try:
        fd = os.pidfd_open(child.pid)  # Not waited for yet: the number is still its.
    except OSError:  # Too many open files: it must not run unseen.
        child.kill()
        child.wait()
        raise
    return SidecarProcess(child.pid, fd, child)


def found(folder: str) -> SidecarProcess | None:
    """The one that lives for a run folder, if any."""
    until = time.monotonic() + _PATIENCE_S
    while run_folder.is_running(folder) and time.monotonic() < until:
        pid = _holder(folder)
        try:
            fd = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            fd = -1
        if fd >= 0:
            if run_folder.is_running(folder) and _holder(folder) == pid:  # The number is still the one we looked up.
                return SidecarProcess(pid, fd, None)
            os.close(fd)
        time.sleep(0.005)  # It is about to write its number down, or just now ends.
    return None


def _holder(folder: str) -> int:
    try:
        with open(os.path.join(folder, run_folder.LOCK), "rb") as file:
            return int(file.read(32) or 0)
    except (OSError, ValueError):
        return 0
