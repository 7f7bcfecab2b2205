"""The cgroup of one attempt: what a job starts stays in it, so all of it can be limited, frozen, killed and measured.

With cgroups of version 2 it is one folder. With version 1 it is a folder in each hierarchy that is used; a machine may
have both versions, with the memory controller in one and the means to freeze and kill in the other. The agent makes,
limits and removes it (`node/containment.py`). The sidecar starts the job's processes in it, and stays outside: what
kills a job for its memory must not kill its sidecar.
"""

from __future__ import annotations

import os
import signal

from hocket.agent.process_tree import process, read

TYPE_CHECKING = False  # Without `typing`, which costs each sidecar memory.
if TYPE_CHECKING:
    from collections.abc import Iterator

# What a folder is used for; the same one for all of it in version 2.
PROCESSES, MEMORY, CPU, CPU_TIME = "processes", "memory", "cpu", "cpu_time"
ROLES = (PROCESSES, MEMORY, CPU, CPU_TIME)
_MIB = 1 << 20
_NO_LIMIT = 1 << 62  # bytes, and above: version 1 has no other word for it
_PERIOD_US = 100_000  # in which a quota of CPU time is counted
_LEAST_QUOTA_US = 1000


class Cgroup:
    """A name for its folders: they may be gone, or not be made yet. Nothing raises unless it says so."""

    def __init__(self, folders: dict[str, str]) -> None:
        self.folders = folders  # by what they are used for; `PROCESSES` is always among them
        self._processes = folders[PROCESSES]
        self._is_v2 = os.path.exists(os.path.join(self._processes, "cgroup.controllers"))

    @property
    def each(self) -> list[str]:
        """Each of its folders once."""
        return list(dict.fromkeys(self.folders.values()))

    # -- limits -------------------------------------------------------------------------------------------------

    def limit(self, mem_mib: float, cores: float, hard_cpus: bool, period_us: int = _PERIOD_US) -> None:
        """Set its limits, 0 for none; OSError if one cannot be set.

        Cores are shares of the CPU time that is wanted at a moment, and what others do not use can be used; with
        `hard_cpus` they are the most that it gets in each period.
        """
        if mem_mib and (memory := self.folders.get(MEMORY)) is not None:
            _limit_memory(memory, min(int(mem_mib * _MIB), _NO_LIMIT))
        if cores and (cpu := self.folders.get(CPU)) is not None:
            set_cpu_shares(cpu, cores)
            if hard_cpus:
                quota_us = max(_LEAST_QUOTA_US, int(cores * period_us))
                if _has(cpu, "cpu.max"):
                    _write(cpu, "cpu.max", f"{quota_us} {period_us}")
                else:
                    _write(cpu, "cpu.cfs_period_us", str(period_us))
                    _write(cpu, "cpu.cfs_quota_us", str(quota_us))

    # -- processes ----------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """The calling process, and what it starts from now on, is in it; OSError if that cannot be."""
        for folder in self.each:
            _write(folder, "cgroup.procs", "0")

    def processes(self) -> list[int]:
        """Those that are in it, and in cgroups that they made below it."""
        found = []
        for folder in _with_those_below(self._processes):
            for pid in map(int, _text(folder, "cgroup.procs").split()):
                if pid and process(pid) is not None:  # Some kernels list zombies, and 0 for what we cannot see.
                    found.append(pid)
        return found

    def kill(self) -> None:
        """Kill all that is in it. A process that was just being started may be left: look again."""
        if _has(self._processes, "cgroup.kill"):
            _try_to_write(self._processes, "cgroup.kill", "1")
            return
        self.freeze()  # None can start another now. In version 1, what is frozen dies when it is thawed.
        known = {}
        try:
            for pid in self.processes():
                try:
                    known[pid] = os.pidfd_open(pid)
                except OSError:
                    continue
            for pid in set(self.processes()) & known.keys():  # Not one that was given the number meanwhile.
                try:
                    signal.pidfd_send_signal(known[pid], signal.SIGKILL)
                except OSError:
                    continue
        finally:
            for fd in known.values():
                os.close(fd)
            self.thaw()

    def freeze(self) -> bool:
        """Let all that is in it stand still, from now on or soon; False if that cannot be done here."""
        if self._is_v2:
            return _try_to_write(self._processes, "cgroup.freeze", "1")
        return _try_to_write(self._processes, "freezer.state", "FROZEN")

    def thaw(self) -> bool:
        """Let it go on."""
        if self._is_v2:
            return _try_to_write(self._processes, "cgroup.freeze", "0")
        return _try_to_write(self._processes, "freezer.state", "THAWED")

    @property
    def is_frozen(self) -> bool:
        """Whether all that is in it stands still."""
        if self._is_v2:
            return _numbers(self._processes, "cgroup.events").get("frozen", 0) == 1
        return _text(self._processes, "freezer.state").strip() == "FROZEN"

    # -- what was used ------------------------------------------------------------------------------------------

    def cpu_s(self) -> float | None:
        """CPU time of all that ever was in it; None if that is not known."""
        if self._is_v2:
            used_us = _numbers(self._processes, "cpu.stat").get("usage_usec")
            return None if used_us is None else used_us / 1e6
        used_ns = _number(self.folders.get(CPU_TIME), "cpuacct.usage")
        return None if used_ns is None else used_ns / 1e9

    def mem_mib(self) -> float | None:
        """Memory that is used now, without cached files that were not read lately; None if that is not known."""
        folder = self.folders.get(MEMORY)
        used = _either(folder, "memory.current", "memory.usage_in_bytes")
        if folder is None or used is None:
            return None
        told = _numbers(folder, "memory.stat")
        return max(0, used - told.get("total_inactive_file", told.get("inactive_file", 0))) / _MIB

    def limit_mib(self) -> float:
        """The memory that it may use; 0 if there is no limit."""
        limit = _either(self.folders.get(MEMORY), "memory.max", "memory.limit_in_bytes")
        return 0.0 if limit is None or limit >= _NO_LIMIT else limit / _MIB

    def ran_out_of_memory(self) -> str:
        """Why the kernel killed a process in it for its memory: the 'limit' of this cgroup, or that there was none on
        the 'machine', or in a cgroup above. Empty if it killed none.
        """
        folder = self.folders.get(MEMORY)
        if folder is None:
            return ""
        if _has(folder, "memory.events"):
            events = _numbers(folder, "memory.events")
            killed, at_limit = events.get("oom_kill", 0), events.get("oom", 0) > 0
        else:
            killed = _numbers(folder, "memory.oom_control").get("oom_kill", 0)
            # Its `failcnt` stays 0 where swap is limited to the same. Memory is taken in portions of up to 2 MiB.
            at_limit = (_number(folder, "memory.max_usage_in_bytes") or 0) > self.limit_mib() * _MIB - (4 << 20)
        return "" if not killed else "limit" if at_limit and self.limit_mib() else "machine"

    # -- its end ------------------------------------------------------------------------------------------------

    def remove(self) -> bool:
        """Remove its folders; False if something is in it still."""
        return sum(not remove_folder(folder) for folder in self.each) == 0  # One that is busy keeps none of the others.


def remove_folder(folder: str) -> bool:
    """Remove a cgroup with those below it; False if a process is left in one of them."""
    for each in reversed(list(_with_those_below(folder))):
        try:
            os.rmdir(each)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def set_cpu_shares(folder: str, cores: float) -> None:
    """How much of the CPU time a cgroup gets if there is not enough, as so many cores; OSError if it cannot be set."""
    if _has(folder, "cpu.weight"):
        _write(folder, "cpu.weight", str(min(10_000, max(1, round(100 * cores)))))
    else:
        _write(folder, "cpu.shares", str(min(262_144, max(2, round(1024 * cores)))))


def _limit_memory(folder: str, limit: int) -> None:
    """Without swap: a job that needs more than it asked for is to end, not to slow down the machine."""
    if _has(folder, "memory.max"):
        _try_to_write(folder, "memory.swap.max", "0")
        _try_to_write(folder, "memory.oom.group", "1")  # A job without one of its processes is of no use.
        _write(folder, "memory.max", str(limit))
        return
    # With swap it may never be less than without: which one comes first depends on what they were.
    _try_to_write(folder, "memory.limit_in_bytes", str(limit))
    _try_to_write(folder, "memory.memsw.limit_in_bytes", str(limit))
    _write(folder, "memory.limit_in_bytes", str(limit))


# -- files --------------------------------------------------------------------------------------------------


def _with_those_below(folder: str) -> Iterator[str]:
    """A cgroup and all below it, each before those below it."""
    yield folder
    try:
        with os.scandir(folder) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for each in below:
        yield from _with_those_below(each)


def _has(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def _write(folder: str, name: str, text: str) -> None:
    fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _try_to_write(folder: str, name: str, text: str) -> bool:
    try:
        _write(folder, name, text)
    except OSError:
        return False
    return True


def _text(folder: str, name: str) -> str:
    return (read(os.path.join(folder, name)) or b"").decode()


def _number(folder: str | None, name: str) -> int | None:
    text = _text(folder, name).strip() if folder is not None else ""
    return int(text) if text.isdecimal() else None


def _either(folder: str | None, v2: str, v1: str) -> int | None:
    """A number that has another name in each version."""
    found = _number(folder, v2)
    return _number(folder, v1) if found is None else found


def _numbers(folder: str, name: str) -> dict[str, int]:
    """Of a file with a name and a number in each line."""
    lines = [line.split() for line in _text(folder, name).splitlines()]
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}
