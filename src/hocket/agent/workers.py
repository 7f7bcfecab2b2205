"""The processes of a job that runs: who lives, how they ended, and which end counts."""

from __future__ import annotations

import os
import signal


class Workers:
    """One process a worker, each the leader of its own group and session."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids  # by rank on this machine
        self._ended: dict[int, int] = {}  # process id → exit status, in the order in which they ended

    def ended(self, pid: int, status: int) -> bool:
        """A child has ended: whether it was a worker."""
        if pid not in self.pids:
            return False
        self._ended[pid] = os.waitstatus_to_exitcode(status)
        return True

    @property
    def alive(self) -> list[int]:
        """Those that were not waited for, so that their numbers are still theirs."""
        return [pid for pid in self.pids if pid not in self._ended]

    @property
    def failed(self) -> bool:
        """Whether one of them ended badly."""
        return any(self._ended.values())

    @property
    def outcome(self) -> tuple[int, int]:
        """Rank and exit code (or minus the signal) of the first that failed, or else of the first."""
        for pid, code in self._ended.items():
            if code:
                return self.pids.index(pid), code
        return 0, self._ended[self.pids[0]]

    def signal(self, number: int, with_group: bool = True) -> None:
        """Send a signal to each worker that lives, and to what stands in its group."""
        for pid in self.alive:
            try:
                (os.killpg if with_group else os.kill)(pid, number)
            except ProcessLookupError:  # It ends just now.
                pass
            except PermissionError:  # It runs as somebody else: what can be done is done.
                pass

    def has_company(self) -> bool:
        """Whether something in the group of a worker outlives it: a shell has ended, and what it ran has not."""
        for pid in self.pids:
            try:
                os.killpg(pid, 0)
                return True
            except ProcessLookupError:
                continue
            except PermissionError:
                return True
        return False


def told(code: int) -> dict[str, int | str | None]:
    """An exit code as two facts: the code, or the name of the signal."""
    if code >= 0:
        return {"code": code, "signal": None}
    try:
        return {"code": None, "signal": signal.Signals(-code).name}
    except ValueError:
        return {"code": None, "signal": f"SIG{-code}"}


def shown(code: int) -> str:
    """An exit code in words."""
    facts = told(code)
    return f"exit code {code}" if facts["signal"] is None else str(facts["signal"])
