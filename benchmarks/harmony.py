"""Harmony's grouping: how good, how fast, how it grows, and one arrival or finish among thousands of jobs.

`python -m benchmarks.harmony [--quick] [--json]`. CPU time, compiling apart.
"""

from __future__ import annotations

import argparse
from random import Random
from time import process_time

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.control.state import empty
from hocket.executors.simulated import simulate
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import Event, JobEnded, JobSubmitted
from hocket.model.job import Job, Kind
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.policies import find
from hocket.reports.account import account
from hocket.reproductions.harmony import many, quality, scheduling
from hocket.reproductions.harmony_result import standing_still
from hocket.workloads.truth import Submission, Truth, Workload

_SCALES = ((80, 100), (1_000, 1_000), (8_000, 10_000), (64_000, 64_000))


class Incremental(Struct, frozen=True):
    """Decisions with so many jobs there."""

    jobs: int
    machines: int
    arrival_ms: float  # medians
    finish_ms: float


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    numbers: dict[str, float]
    incremental: list[Incremental]
    day: Day


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

    controller = Controller(empty(nodes), decide, bound.order, MemoryJournal(Header("harmony")))
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
    dice, arrivals, finishes = Random("benchmarks"), [], []
    for turn in range(turns):
        running = [v.job.id for v in controller.snapshot.jobs.values() if v.size]
        for events, times in (
            ([newcomer(jobs + turn, 10.0 + turn)], arrivals),
            ([JobEnded(10.5 + turn, dice.choice(running))], finishes),
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
    """100 machines loaded to about 80 %, jobs of 20 iterations, 13 s to migrate: does it keep changing its mind?"""
    dice = Random("harmony/day")
    nodes = [Node(f"m{i:03}", cores=8.0, mem_mib=32_000.0, net_mbps=1100.0) for i in range(100)]
    submissions = []
    for n in range(round(60 * hours)):
        comp_s, comm_s = dice.uniform(100, 400) / 16, dice.uniform(5, 20)
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


def main() -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harmony", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    numbers = {**quality(30 if chosen.quick else 300), **scheduling(_SCALES[:2] if chosen.quick else _SCALES)}
    sizes = ((80, 100),) if chosen.quick else ((80, 100), (8_000, 10_000))
    found = Measured(
        "python -m benchmarks.harmony" + (" --quick" if chosen.quick else ""),
        machine(),
        numbers,
        [incremental(n, m, 3 if chosen.quick else 10) for n, m in sizes],
        day(1.0 if chosen.quick else 24.0),
    )
    if chosen.json:
        print(msgspec.json.encode(found).decode())
        return
    print(found.command)
    for name, value in numbers.items():
        print(f"{name:24} {value:10.4f}")
    for row in found.incremental:
        print(
            f"{row.jobs:,} jobs on {row.machines:,} machines: an arrival {row.arrival_ms:.1f} ms, "
            f"a finish {row.finish_ms:.1f} ms"
        )
    d = found.day
    print(
        f"a job a minute for {d.hours:g} h: {d.ended} of {d.jobs} ended, {d.moves} moves and resizes, "
        f"{d.moved_share:.2%} of machine time ({d.moved_at_most:.2%} if companions stood still too), "
        f"{d.simulating_s:.0f} CPU-s"
    )


if __name__ == "__main__":
    main()
