"""What it costs to begin: `hocket --help`, and a simulation of nothing much."""

from __future__ import annotations

from msgspec import Struct

from benchmarks.machine import Compiled, median


class StartUp(Struct, frozen=True):
    """Medians of several runs, with bytecode compiled beforehand as after an installation."""

    python_s: float  # an interpreter that does nothing
    help_s: float
    one_job_s: float  # a simulation of one job: what every simulation pays once
    help_ratio: float  # to the bare interpreter
    goal_help_s: float = 0.4


def start_up(quick: bool, python: Compiled) -> StartUp:
    """CPU-seconds of whole processes."""
    times = 1 if quick else 7

    def cost(*arguments: str) -> float:
        return median([python.cost(*arguments).cpu_s for _ in range(times)])

    bare_s, help_s = cost("-c", "pass"), cost("-m", "hocket", "--help")
    one_s = cost("-m", "hocket", "simulate", "burst?jobs=1", "--cluster", "1x8", "--policy", "fifo", "--json")
    return StartUp(bare_s, help_s, one_s, help_s / bare_s if bare_s else 0.0)
