"""What a job uses: CPU time, cores and memory of all its processes, measured now and then; and a full disk.

Its cgroup has counted that, if it has one. Otherwise its processes are found as descendants of the sidecar.
"""

from __future__ import annotations

import os
import time

from hocket.agent.process_tree import Process, descendants, proportional_mib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.cgroup import Cgroup

_EVERY_S = 5.0  # and half as often while nothing changes
_MOST_SHARE = 0.0005  # of a core that looking may take
_SAID_EVERY_S = 60.0


class JobUsage:
    """Looks at the job's cgroup, or at the descendants of the sidecar, which are its processes and nothing else."""

    def __init__(self, root: int, now_s: float, cgroup: Cgroup | None = None) -> None:
        self._root, self._cgroup = root, cgroup
        self._ended_cpu_s = 0.0  # of processes that were waited for
        self._last = (now_s, self._measured()[0])
        self._said: tuple[float, float, float] | None = None  # when, cores, MiB
        self.next_s = now_s + 1.0
        self.peak_mib = 0.0

    def ended(self, cpu_s: float) -> None:
        """A child was waited for: what it used is no longer found among those alive."""
        self._ended_cpu_s += cpu_s

    def cpu_s(self) -> float:
        """CPU time when all of it has ended."""
        counted = self._cgroup.cpu_s() if self._cgroup is not None else None
        return self._ended_cpu_s if counted is None else counted

    def mem_mib(self) -> float:
        """Memory that it has now, in MiB."""
        return self._measured()[1]

    def _measured(self) -> tuple[float, float]:
        """CPU time up to now, and memory in MiB."""
        cpu_s, mem_mib = (None, None) if self._cgroup is None else (self._cgroup.cpu_s(), self._cgroup.mem_mib())
        if cpu_s is not None and mem_mib is not None:
            return cpu_s, mem_mib
        alive = descendants(self._root)
        cpu_s = self._ended_cpu_s + sum(p.cpu_s for p in alive) if cpu_s is None else cpu_s
        return cpu_s, memory_mib(alive) if mem_mib is None else mem_mib

    def look(self, now_s: float) -> dict[str, float] | None:
        """What is used now; None if that was said already and has hardly changed."""
        began = time.perf_counter()
        cpu_s, mem_mib = self._measured()
        self.next_s = now_s + max(_EVERY_S, (time.perf_counter() - began) / _MOST_SHARE)
        last_s, last_cpu_s = self._last
        cores = max(cpu_s - last_cpu_s, 0.0) / max(now_s - last_s, 1e-3)
        self._last = (now_s, cpu_s)
        self.peak_mib = max(self.peak_mib, mem_mib)
        if self._said is not None:
            said_s, said_cores, said_mib = self._said
            changed = abs(cores - said_cores) > 0.05 + 0.1 * said_cores or abs(mem_mib - said_mib) > 8 + 0.05 * said_mib
            if not changed:
                self.next_s = max(self.next_s, now_s + 2 * _EVERY_S)
                if now_s - said_s < _SAID_EVERY_S:
                    return None
        self._said = (now_s, cores, mem_mib)
        return {"cpu_s": round(cpu_s, 2), "cores": round(cores, 3), "mem_mib": round(mem_mib, 1)}


def memory_mib(alive: list[Process]) -> float:
    """Memory of several processes. Forked ones share most of theirs, so that a sum would count it many times."""
    if len(alive) == 1:
        return alive[0].mem_mib
    return sum(p.mem_mib if (mib := proportional_mib(p.pid)) is None else mib for p in alive)


_LITTLE = 1 << 20  # bytes: no checkpoint is so small that this is enough for long


def disk_full(folder: str | None) -> str:
    """What to tell a user whose job broke when there was no space in its checkpoint folder; empty if there was."""
    try:
        found = os.statvfs(folder) if folder is not None else None
    except OSError:
        return ""
    if found is None:
        return ""
    free = found.f_bavail * found.f_frsize
    if free >= _LITTLE and (found.f_favail or not found.f_files):
        return ""
    return f"there is no space to save in: its checkpoint folder '{folder}' has {free // 1024:,} KiB left"
