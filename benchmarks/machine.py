"""What all benchmarks need: where and when it was measured, what a process costs, and a table of numbers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
NOT_AS_USERS_HAVE_IT = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME")


class Machine(Struct, frozen=True):
    """The size of the machine, not its name."""

    cores: int
    memory_gib: float
    python: str
    date: str
    load: float  # runnable processes when the benchmarks began: others slow us down


def machine() -> Machine:
    """This one, now."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Machine(cores, round(memory, 1), platform.python_version(), date, round(os.getloadavg()[0], 1))


class Cost(Struct, frozen=True):
    """What a process took from its start to its end."""

    cpu_s: float
    peak_mib: float
    output: str


class Compiled:
    """A folder for bytecode: start-up is measured as users have it, compiled once, and nothing is written elsewhere."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hocket-bench-")
        self._environment = {k: v for k, v in os.environ.items() if k not in NOT_AS_USERS_HAVE_IT}
        self._environment["PYTHONPYCACHEPREFIX"] = self._folder.name
        self.cost("-m", "hocket", "simulate", "demo", "--policy", "fifo", "--json")  # Compile what will be used.
        self.cost("-m", "hocket", "--help")

    def cost(self, *arguments: str) -> Cost:
        """Run Python with these arguments; CPU time and memory are those of the whole process."""
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen([sys.executable, *arguments], stdout=out, cwd=ROOT, env=self._environment)
            _pid, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            output = out.read().decode()
        if process.returncode:
            raise SystemExit(f"benchmarks: {' '.join(arguments)} ended with {process.returncode}")
        peak = used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
        return Cost(used.ru_utime + used.ru_stime, peak, output)

    def close(self) -> None:
        """Remove the bytecode."""
        self._folder.cleanup()


def median(values: Sequence[float]) -> float:
    """The middle one, the upper of two."""
    return sorted(values)[len(values) // 2]


def table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they need to be; the first to the left, the others to the right."""
    wide = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    return [
        "  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, wide, strict=True)))
        for row in [titles, *rows]
    ]
