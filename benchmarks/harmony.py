"""Harmony's grouping: how good, how fast, how it grows, and one arrival or finish among thousands of jobs.

`python -m benchmarks.harmony [--quick] [--json]`. CPU time, compiling apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from math import log
from random import Random
from time import process_time

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import Event, JobEnded, JobSubmitted
from hocket.model.job import Job, Kind
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import empty_snapshot
from hocket.model.view import Costs
from hocket.policies import find
from hocket.reports.account import account
from hocket.workloads.truth import Submission, Truth, Workload
from hocket_reproductions.harmony.measurements import many, quality, scheduling
from hocket_reproductions.harmony.run_result import standing_still

_SCALES = ((80, 100), (1_000, 1_000), (8_000, 10_000), (64_000, 64_000))


class Incremental(Struct, frozen=True):
    """Decisions with so many jobs there."""

    jobs: int
    machines: int
    arrival_ms: float  # medians
    finish_ms: float


class Line(Struct, frozen=True):
    """One thing that was asked for."""

    what: str
    measured: float
    goal: float | None
    unit: str
    at_least: bool = False  # what is asked for is a least, not a most

    @property
    def ratio(self) -> float | None:
        """How many times better than the goal; below 1, it is missed."""
        if self.goal is None or not self.measured:
            return None
        return self.measured / self.goal if self.at_least else self.goal / self.measured


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    lines: list[Line]
    took_s: float  # CPU, compiling included


def incremental(jobs: int, machines: int, turns: int) -> Incremental:
    """One job ends, another with a known profile comes: what each decision takes."""
    nodes = [Node(f"m{i:05}", cores=8.0, mem_mib=32_000.0, net_mbps=1100.0) for i in range(machines)]
    bound = find("harmony").bound()
    took: list[float] = []

    def decide(snapshot):  # type: ignore[no-untyped-def]
        began = process_time()
        plan = bound.decide(snapshot)
        took.append(process_time() - began)
        return plan

    controller = Controller(empty_snapshot(nodes), decide, bound.order, MemoryJournal(Header("harmony")))
    profiles = many(jobs + turns)
    sizes = tuple(range(1, 65))

    def newcomer(n: int, at_s: float) -> JobSubmitted:
        p = profiles[n]
        known = Beliefs(comp_s=Curve((Point(1.0, p.comp_machine_s),)), comm_s=Curve((Point(1.0, p.comm_s),)))
        job = Job(f"j{n}", kind=Kind.PARAMETER_SERVER, demand=Demand(cores=8.0, net_mbps=1100.0), sizes=sizes)
        return JobSubmitted(at_s, job, known)

    def cycle(at_s: float, *events: Event) -> None:
        from hocket.testing.harness import done

        actions = controller.cycle(at_s, events)
        while actions:
            actions = controller.cycle(at_s, [done(a, at_s) for a in actions])

    cycle(0.0, *(newcomer(n, 0.0) for n in range(jobs)))
    rng = Random("benchmarks")
    arrivals: list[float] = []
    finishes: list[float] = []
    for turn in range(turns):
        running = [v.job.id for v in controller.snapshot.jobs.values() if v.size]
        for events, times in (
            ([newcomer(jobs + turn, 10.0 + turn)], arrivals),
            ([JobEnded(10.5 + turn, rng.choice(running))], finishes),
        ):
            took.clear()
            cycle(events[0].at_s, *events)
            times += took[:1]
    return Incremental(jobs, machines, median(arrivals) * 1e3, median(finishes) * 1e3)


class Day(Struct, frozen=True):
    """A job every minute, with nothing known beforehand."""

    hours: float
    jobs: int
    ended: int
    moves: int
    moved_share: float  # of the machines' time, that jobs' parts of them stood still for migrations …
    moved_at_most: float  # … and if all their companions stood still too
    simulating_s: float  # CPU


def day(hours: float) -> Day:
    """100 machines loaded to about 80 %, jobs of 20 iterations, 13 s to migrate: does it regroup too often?"""
    rng = Random("harmony/day")
    nodes = [Node(f"m{i:03}", cores=8.0, mem_mib=32_000.0, net_mbps=1100.0) for i in range(100)]
    submissions = []
    for n in range(round(60 * hours)):
        comp_s, comm_s = rng.uniform(100, 400) / 16, rng.uniform(5, 20)
        job = Job(f"j{n}", kind=Kind.PARAMETER_SERVER, demand=Demand(cores=8.0), sizes=tuple(range(1, 101)))
        costs = Costs(start_s=10.0, checkpoint_s=3.0)
        truth = Truth(20 * (comp_s + comm_s), 16, comp_s=comp_s, comm_s=comm_s, costs=costs)
        submissions.append(Submission(60.0 * n, job, truth))
    began = process_time()
    workload = Workload("day", tuple(submissions))
    ran = simulate(workload, nodes, find("harmony").bound())
    took = process_time() - began
    found = account(ran.journal.header, ran.journal)
    ended = sum(r.jct_s is not None for r in found.jobs)
    part_s, whole_s = standing_still(ran.journal, workload)
    machine_s = found.makespan_s * len(nodes)
    moves = found.counts.moves + found.counts.resizes
    return Day(hours, len(submissions), ended, moves, part_s / machine_s, whole_s / machine_s, took)


def schedules(scales: Sequence[tuple[int, int]]) -> list[Line]:
    """Groupings from scratch, by work done, as is the default, and by utilisation, as the paper has it."""
    numbers = scheduling(scales)
    # From 1,000 jobs on, time may grow as n·log n does.
    grown = {n: numbers["work_s_1000"] * n * log(n) / (1000 * log(1000)) for n, _m in scales if n > 8_000}
    goals = {80: 0.020, 8_000: 0.300, **grown}
    found = []
    for n, machines in scales:
        for name, how in (("work", ""), ("use", ", objective=use")):
            what = f"{n:,} jobs on {machines:,} machines{how}"
            found.append(Line(what, 1e3 * numbers[f"{name}_s_{n}"], 1e3 * goals[n] if n in goals else None, "ms"))
            found.append(Line("… utilisation", 100 * numbers[f"{name}_u_{n}"], 99.5 if n == 8_000 else None, "%", True))
    return found


def qualities(instances: int) -> list[Line]:
    """Groupings over the best there is, on small cases."""
    numbers = quality(instances)
    return [
        Line(f"{what} over the best, {instances} small cases, {of}", 100 * numbers[f"{name}_{of}"], goal, "%", True)
        for name, what, goals in (
            ("quality", "utilisation", (99.9, 99.0)),
            ("work", "work done", (99.9, 99.0)),
            ("printed", "Algorithm 1 as printed", (None, None)),
        )
        for of, goal in zip(("mean", "worst"), goals, strict=True)
    ]


def decisions(jobs: int, machines: int, turns: int) -> list[Line]:
    """One arrival and one finish."""
    found = incremental(jobs, machines, turns)
    return [
        Line(f"an arrival among {jobs:,} jobs", found.arrival_ms, 20.0, "ms"),
        Line(f"a finish among {jobs:,} jobs", found.finish_ms, 20.0, "ms"),
    ]


def days(hours: float) -> list[Line]:
    """A job a minute."""
    found = day(hours)
    return [
        Line(
            f"a job a minute for {hours:g} h: {found.ended:,} of {found.jobs:,} ended",
            found.ended,
            found.jobs,
            "",
            True,
        ),
        Line("… machine time that migrations take", 100 * found.moved_share, 2.0, "%"),
        Line("… if companions stood still too", 100 * found.moved_at_most, None, "%"),
        Line("… moves and resizes", found.moves, None, ""),
        Line("… CPU time of the simulation", found.simulating_s, None, "s"),
    ]


def main() -> None:
    """Measure, and print one table or one object; how far it is goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harmony", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    quick, began = chosen.quick, process_time()
    parts: list[tuple[str, Callable[[], list[Line]]]] = [
        ("from scratch", lambda: schedules(_SCALES[:2] if quick else _SCALES)),
        ("over the best", lambda: qualities(30 if quick else 300)),
        ("80 jobs", lambda: decisions(80, 100, 3 if quick else 20)),
        ("a day", lambda: days(1.0 if quick else 24.0)),
    ]
    if not quick:
        parts.insert(3, ("8,000 jobs", lambda: decisions(8_000, 10_000, 10)))
    lines: list[Line] = []
    for n, (name, measure) in enumerate(parts):
        print(f"[{n + 1}/{len(parts)}] {name} …", file=sys.stderr, flush=True)
        lines += measure()
    command = "python -m benchmarks.harmony" + (" --quick" if quick else "")
    found = Measured(command, machine(), lines, process_time() - began)
    if chosen.json:
        print(msgspec.json.encode(found).decode())
        return
    print(f"{found.command}: {found.took_s:.0f} CPU-s\n\n{'':66}{'measured':>12}{'goal':>12}{'ratio':>8}")
    for line in lines:
        goal = f"{line.goal:,.4g} {line.unit}" if line.goal is not None else "–"
        ratio = f"{line.ratio:.2f}×" if line.ratio is not None else ""
        print(f"{line.what:66}{f'{line.measured:,.4g} {line.unit}':>12}{goal:>12}{ratio:>8}")


if __name__ == "__main__":
    main()
