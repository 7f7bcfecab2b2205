"""Sees when the lease of the sidecar's agent is over: the job stands still, since it may be started elsewhere."""

from __future__ import annotations

import signal

from hocket.agent.lease_file import boot_s, read_lease
from hocket.agent.sidecar.process_suspension import signal_job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from hocket.agent.cgroup import Cgroup

_FIRST_S = 1.0  # until the first look: the agent renews its lease when it has carried out its orders
_LONGEST_S = 2.0  # between looks: a timer does not count while the machine sleeps
FROZEN_S = 0.2  # between looks while the job stands still


class LeaseWatch:
    """Freezes all processes of a job when the lease is over, and lets them go on when it is renewed.

    By the freezer of its cgroup if it has one, which nothing that it ever started escapes, or else by SIGSTOP.
    """

    def __init__(self, path: str | None, mark: str, cgroup: Cgroup | None = None) -> None:
        self._path, self._mark, self._cgroup = path, mark, cgroup
        self._by_signal = False  # It was stopped by SIGSTOP, and needs SIGCONT to go on.
        self._since_s: float | None = None  # since when the job stands still, by `boot_s`
        self.is_suspended = False  # The job stays stopped when the lease is renewed.
        self.goes_on_later = False  # It was suspended, and goes on when the lease is renewed.
        self._goes_on = False  # the lease is renewed: orders that came before are carried out first
        self.next_s: float | None = None  # when to look

    def begin(self, now_s: float) -> None:
        """The job's process runs from now on."""
        self.next_s = now_s + _FIRST_S if self._path is not None else None

    @property
    def is_frozen(self) -> bool:
        """Whether the job stands still."""
        return self._since_s is not None

    @property
    def is_over(self) -> bool:
        """Whether the job must not run now."""
        until_s = read_lease(self._path) if self._path is not None else None
        return until_s is not None and boot_s() >= until_s

    def look(self, now_s: float, sessions: Iterable[int]) -> dict[str, float] | None:
        """Freeze the job or let it go on, if that is due; what is to be reported of that, None if nothing changes."""
        assert self._path is not None
        until_s, at_s = read_lease(self._path), boot_s()
        holds = until_s is None or at_s < until_s
        if self._since_s is None:
            if not holds:
                self._freeze(sessions)
                self._since_s, self.next_s = at_s, now_s + FROZEN_S
                return {}
            self.next_s = now_s + (_LONGEST_S if until_s is None else min(until_s - at_s, _LONGEST_S))
        elif not holds:
            self._goes_on = False
            self._freeze(sessions)  # Another process may have let it go on, or it was just started.
            self.next_s = now_s + FROZEN_S
        elif not self._goes_on:
            self._goes_on, self.next_s = True, now_s
        else:
            stood_s, self._since_s, self._goes_on = at_s - self._since_s, None, False
            self._thaw(sessions)
            self.next_s = now_s + _FIRST_S
            return {"stood_s": round(stood_s, 3)}
        return None

    def _freeze(self, sessions: Iterable[int]) -> None:
        if self._cgroup is None or not self._cgroup.freeze():
            self._by_signal = True
            signal_job(signal.SIGSTOP, self._mark, sessions, self._cgroup)

    def _thaw(self, sessions: Iterable[int]) -> None:
        if self._cgroup is not None:
            self._cgroup.thaw()
        if self._by_signal:
            self._by_signal = False
        elif not self.goes_on_later:
            return
        self.goes_on_later = False
        if not self.is_suspended:
            signal_job(signal.SIGCONT, self._mark, sessions, self._cgroup)
