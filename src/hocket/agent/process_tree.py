"""Which process descends from which, and what one uses: read from /proc."""

from __future__ import annotations

import os

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Process:
    """One line of /proc/PID/stat."""

    __slots__ = ("cpu_s", "mem_mib", "parent", "pid", "session", "state", "threads")

    def __init__(self, pid: int, line: bytes) -> None:
        # The name in parentheses may hold anything, parentheses too.
        fields = line[line.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.cpu_s = sum(map(int, fields[11:15])) / _TICKS  # its own, and of its children that ended
        self.threads = int(fields[17])
        self.mem_mib = int(fields[21]) * _PAGE_MIB


def process(pid: int) -> Process | None:
    """One process, if it is there; a zombie is not."""
    line = read(f"/proc/{pid}/stat")
    found = Process(pid, line) if line else None
    return None if found is None or found.state in "ZX" else found


def processes() -> list[Process]:
    """All that can be seen."""
    return [p for name in os.listdir("/proc") if name.isdigit() and (p := process(int(name))) is not None]


def descendants(root: int) -> list[Process]:
    """Children of a process, their children, and so on; it costs what they are, not what runs on the machine."""
    found: list[Process] = []
    threads = {root: 2}  # How many threads we have ourselves is not worth a look.
    while threads:
        pid, count = threads.popitem()
        tasks = [str(pid)] if count == 1 else _listed(f"/proc/{pid}/task")
        for task in tasks:
            for child in (read(f"/proc/{pid}/task/{task}/children") or b"").split():
                known = process(int(child))
                if known is not None:
                    found.append(known)
                    threads[known.pid] = known.threads
    return found


def proportional_mib(pid: int) -> float | None:
    """Memory of a process, with what it shares divided among those that share it; dearer than `mem_mib`."""
    for line in (read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) / 1024
    return None


def read(path: str) -> bytes | None:
    """A file of /proc; None when its process is gone or not ours to look at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, 1 << 16)
        if len(data) == 1 << 16:
            while more := os.read(fd, 1 << 20):
                data += more
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
