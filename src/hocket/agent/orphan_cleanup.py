"""What is left of a job: every process that bears its mark, wherever it went, and an end to it.

A mark is the variable HOCKET_MARK in the environment of the job's first processes, which whatever they start inherits.
Those that wiped their environment are found while the sidecar lives, as its descendants, or in the job's sessions.
Where the job has a cgroup, all that it ever started is in it.
"""

from __future__ import annotations

import os
import signal
import time

from hocket.agent.process_tree import Process, descendants, process, processes, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from hocket.agent.cgroup import Cgroup

MARK = "HOCKET_MARK"
_ROUND_S = 0.02


def orphans(
    mark: str, sessions: Iterable[int] = (), below: int | None = None, cgroup: Cgroup | None = None
) -> list[int]:
    """The processes that bear a mark, or are in one of these sessions, below a process or in a cgroup; never ourselves.

    A session is named by its first process. If that one lives and does not bear the mark, then the number has been
    given to another process meanwhile, and its session is left alone.
    """
    own = _own(sessions, mark)
    found = {p.pid for p in processes() if p.session in own or _bears(p.pid, mark)}
    if below is not None:
        found |= {p.pid for p in descendants(below)}
    if cgroup is not None:
        found |= set(cgroup.processes())
    return sorted(found - {os.getpid()})


def kill_orphans(
    mark: str,
    sessions: Iterable[int] = (),
    below: int | None = None,
    cgroup: Cgroup | None = None,
    within_s: float = 5.0,
) -> list[int]:
    """Kill them, and those they start meanwhile, until there is none; the ones that would not die."""
    sessions = tuple(sessions)
    until = time.monotonic() + within_s
    while (found := orphans(mark, sessions, below, cgroup)) and time.monotonic() < until:
        if cgroup is not None:
            cgroup.kill()
        own = _own(sessions, mark)
        for pid in found:
            _kill(pid, mark, own, below)
        time.sleep(_ROUND_S)
    return found


def _kill(pid: int, mark: str, own: set[int], below: int | None) -> None:
    """Kill a process, but not another that was given its number since we looked."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        there = process(pid)
        if there is not None and (there.session in own or _bears(pid, mark) or _descends(there, below)):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(fd)


def _own(sessions: Iterable[int], mark: str) -> set[int]:
    return {s for s in sessions if process(s) is None or _bears(s, mark)}


def _bears(pid: int, mark: str) -> bool:
    return f"{MARK}={mark}".encode() in (read(f"/proc/{pid}/environ") or b"").split(b"\0")


def _descends(there: Process | None, root: int | None) -> bool:
    while there is not None and there.parent > 1:
        if there.parent == root:
            return True
        there = process(there.parent)
    return False
