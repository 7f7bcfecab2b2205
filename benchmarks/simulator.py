"""Start-up time, and jobs per CPU-second of a whole `hocket simulate --json` process, trace and summary included."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec import Struct

from benchmarks.machine import ROOT, Compiled, median

# Jobs per CPU-second of other simulators, each on traces of its own: from the project's design notes, section 8.
# They are not run again here, so a ratio says how many times, not how much to the last digit.
PEERS = {
    "Tiresias' simulator": {"fifo": 361.0, "las": 215.0},  # on 7,423 jobs
    "Gavel": {"": 24.0},  # at least
    "Blox": {"": 20.0},
    "Pollux": {"": 6.0},  # 2 to 6
    "Sia": {"": 0.35},
}
GOALS = {("fifo", "309x8"): 20_000, ("las", "309x8"): 20_000, ("fifo", "160x8"): 10_000, ("las", "160x8"): 10_000}


class Speed(Struct, frozen=True):
    """One simulation."""

    policy: str
    cluster: str
    jobs: int
    finished: int
    cpu_s: float
    jobs_per_cpu_s: float
    peak_mib: float
    jct_mean_s: float
    best_peer: str
    best_peer_jobs_per_cpu_s: float
    ratio: float  # to the best peer
    goal_jobs_per_cpu_s: int
    command: str


class Growth(Struct, frozen=True):
    """The same load, for longer."""

    what: str
    jobs: tuple[int, int]
    cpu_us_per_job: tuple[float, float]  # of the whole process
    net_us_per_job: tuple[float, float]  # less what the same trace costs with one job: start-up, and reading the file
    ratio: float  # of the net ones


def speeds(trace: Trace, quick: bool, python: Compiled) -> list[Speed]:
    """FIFO and LAS, at low load and at high load."""
    chosen = (("fifo", "309x8"), ("las", "160x8")) if quick else tuple(GOALS)
    return [_speed(trace, policy, cluster, python) for policy, cluster in chosen]


def _speed(trace: Trace, policy: str, cluster: str, python: Compiled) -> Speed:
    cost, told = simulated(python, trace.spec, cluster, policy)
    peer, theirs = max(
        ((name, speed.get(policy, speed.get("", 0.0))) for name, speed in PEERS.items()), key=lambda p: p[1]
    )
    rate = told["jobs"] / cost
    return Speed(
        policy, cluster, told["jobs"], told["finished"], cost, rate, told["peak_rss_mib"], told["jct_mean_s"],
        peer, theirs, rate / theirs, GOALS[policy, cluster],
        f"hocket simulate '{trace.shown}' --cluster {cluster} --policy {policy} --json",
    )  # fmt: skip


def simulated(python: Compiled, spec: str, cluster: str, policy: str) -> tuple[float, dict[str, float]]:
    """CPU-seconds of the whole process, and what it printed."""
    cost = python.cost("-m", "hocket", "simulate", spec, "--cluster", cluster, "--policy", policy, "--json")
    return cost.cpu_s, json.loads(cost.output)


def growth(trace: Trace, known: list[Speed], quick: bool, python: Compiled) -> list[Growth]:
    """CPU time per job, from the first jobs to all: of the trace, and of a generated one whose load stays the same."""
    few = 500 if quick else 10_000
    found = []
    for speed in known:
        part_s, one_s = (simulated(python, trace.first(n), speed.cluster, speed.policy)[0] for n in (few, 1))
        what = f"{speed.policy} {speed.cluster}, the trace"
        found.append(_growth(what, few, part_s, trace.jobs, speed.cpu_s, one_s))
    if trace.is_real:
        many = 2000 if quick else 100_000
        part_s, all_s, one_s = (simulated(python, GENERATED.format(jobs=n), "160x8", "las")[0] for n in (few, many, 1))
        found.append(_growth("las 160x8, generated at one load", few, part_s, many, all_s, one_s))
    return found


def _growth(what: str, few: int, few_s: float, many: int, many_s: float, one_s: float) -> Growth:
    gross = (few_s / few * 1e6, many_s / many * 1e6)
    net = (max(few_s - one_s, 0.0) / few * 1e6, max(many_s - one_s, 0.0) / many * 1e6)
    return Growth(what, (few, many), gross, net, net[1] / net[0] if net[0] else 0.0)


PHILLY = Path("philly") / "philly_jobs.csv.gz"
# Arrivals 5 s apart load 160x8 to about 91 % and 309x8 to about 47 %, as the real table does.
GENERATED = "poisson?jobs={jobs}&gap=5.05&owners=15"


class Trace(Struct, frozen=True):
    """A trace that can be taken whole or in part."""

    spec: str  # with {jobs} for a number of jobs, or the whole
    part: str
    jobs: int
    shown: str  # as a reader can type it
    is_real: bool = True

    def first(self, jobs: int) -> str:
        """The spec of its first jobs."""
        return self.part.format(jobs=jobs)


def trace(quick: bool) -> Trace:
    """The trace to measure on."""
    path = Path(os.environ.get("HOCKET_DATA") or ROOT.parent / "shared" / "data") / PHILLY
    if path.is_file():
        spec, shown = f"philly:{path}", f"philly:$HOCKET_DATA/{PHILLY.as_posix()}"
        part = "?first={jobs}"
        if quick:
            return Trace(f"{spec}?first=2000", spec + part, 2000, f"{shown}?first=2000")
        return Trace(spec, spec + part, 111_549, shown)
    jobs = 2000 if quick else 100_000
    spec = GENERATED.format(jobs=jobs)
    return Trace(spec, GENERATED, jobs, spec, is_real=False)


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
