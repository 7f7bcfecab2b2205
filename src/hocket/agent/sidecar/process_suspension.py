"""Suspends a job: its processes are stopped, keep their memory and use no cores, until they are let go on.

By signals, as a shell does: SIGTSTP asks the workers to stop themselves where it suits them, SIGSTOP stops what is left
when their time is over, SIGCONT lets all go on.
"""

from __future__ import annotations

import os
import signal

from hocket.agent.orphan_cleanup import orphans
from hocket.agent.process_tree import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from hocket.agent.cgroup import Cgroup
    from hocket.agent.sidecar.workers import Workers

_LOOK_S = 0.05  # between looks whether they have stopped themselves
_GOES_ON_S = 2.0  # in which one that was just about to stop itself may still do so


class ProcessSuspension:
    """Whether the job is suspended, or is to be."""

    def __init__(self, mark: str, cgroup: Cgroup | None) -> None:
        self._mark, self._cgroup = mark, cgroup
        self._stop_s: float | None = None  # when their time to stop themselves is over; None: they are not asked to
        self._watch_s: float | None = None  # until when a worker that stops itself is let go on at once
        self.is_suspended = False
        self.next_s: float | None = None  # when to look

    def ask(self, workers: Workers, grace_s: float, now_s: float) -> None:
        """Let the workers stop themselves, for so long."""
        self._stop_s, self._watch_s, self.next_s = now_s + grace_s, None, now_s
        if grace_s > 0:
            workers.signal(signal.SIGTSTP, with_group=False)

    def look(self, workers: Workers, now_s: float, is_frozen: bool) -> bool:
        """Stop what is left when the workers have stopped, or should have; whether that is done now.

        While the job is frozen for its lease, nothing is seen of that.
        """
        if not workers.alive:
            self._stop_s = self._watch_s = self.next_s = None
        elif is_frozen:
            self.next_s = now_s + _LOOK_S
        elif self._stop_s is not None:
            if now_s < self._stop_s and not all(_is_stopped(pid) for pid in workers.alive):
                self.next_s = now_s + _LOOK_S
                return False
            signal_job(signal.SIGSTOP, self._mark, workers.pids, self._cgroup)
            self._stop_s, self.next_s, self.is_suspended = None, None, True
            return True
        elif self._watch_s is not None:
            if any(_is_stopped(pid) for pid in workers.alive):
                signal_job(signal.SIGCONT, self._mark, workers.pids, self._cgroup)
            self._watch_s = self._watch_s if now_s < self._watch_s else None
            self.next_s = None if self._watch_s is None else now_s + _LOOK_S
        return False

    def end(self, workers: Workers, now_s: float, is_frozen: bool) -> bool:
        """Let all go on, also those that are about to stop themselves; False if it was not suspended, nor asked to.

        What is frozen for its lease goes on with that.
        """
        if not self.is_suspended and self._stop_s is None:
            return False
        self.is_suspended, self._stop_s = False, None
        self._watch_s, self.next_s = now_s + _GOES_ON_S, now_s + _LOOK_S
        if not is_frozen:
            signal_job(signal.SIGCONT, self._mark, workers.pids, self._cgroup)
        return True


def signal_job(number: signal.Signals, mark: str, sessions: Iterable[int], cgroup: Cgroup | None) -> None:
    """To all that is of the job; a process that starts another meanwhile is found the second time."""
    known: set[int] = set()
    while new := set(orphans(mark, sessions, os.getpid(), cgroup)) - known:
        for pid in new:
            try:
                os.kill(pid, number)
            except OSError:  # It ends just now, or runs as another user: what can be done is done.
                continue
        known |= new


def _is_stopped(pid: int) -> bool:
    found = process(pid)
    return found is not None and found.state == "T"
