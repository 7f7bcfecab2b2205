"""How long a decision of `reshape` takes with many jobs running: `python -m benchmarks.reshape [--jobs N] [--json]`.

The cluster is full of elastic jobs. In each turn one ends, or one comes, or both; all that a decision sets off is
answered before the next turn. For a newcomer every running job is weighed as a donor, for idle GPUs as the one to grow.
Measured is the decision alone, in CPU time: other processes do not count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import log
from random import Random
from time import process_time

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.curve import Beliefs, Estimate
from hocket.model.event import Event, JobEnded, JobSubmitted
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import Costs
from hocket.policies import find
from hocket.testing.harness import done
from hocket.workloads.speed import USUAL_LAW

GOAL_MS = 10.0
SIZES = (1, 2, 4, 8)
KINDS = {"v100": 1.0, "p100": 0.7}


class Decisions(Struct, frozen=True):
    """Decisions of one sort."""

    about: str
    asked: int
    running: int  # jobs, at the least
    median_ms: float
    p99_ms: float
    most_ms: float


class Measured(Struct, frozen=True):
    """One run."""

    command: str
    machine: Machine
    goal_ms: float
    decisions: list[Decisions]


class _Watch:
    """A policy with a clock."""

    def __init__(self, decide: Callable[[Snapshot], Plan]) -> None:
        self._decide = decide
        self.took: list[tuple[bool, int, float]] = []  # whether a job arrived, jobs that run, seconds

    def __call__(self, snapshot: Snapshot) -> Plan:
        began = process_time()
        plan = self._decide(snapshot)
        self.took.append((bool(snapshot.arrived), snapshot.placed.count, process_time() - began))
        return plan


def measured(jobs: int, turns: int, one_node: bool, command: str) -> Measured:
    """Fill a cluster with so many jobs, and let turns go by."""
    rng = Random("benchmarks")
    nodes = [Node(f"n{i}", 8, "v100" if i % 2 else "p100") for i in range(jobs * 3 // 8)]
    bound = find("reshape").bound()
    watch = _Watch(bound.decide)
    controller = Controller(empty_snapshot(nodes), watch, bound.order, MemoryJournal(Header("reshape")), **bound.needs)
    made = 0

    def newcomer(at_s: float) -> JobSubmitted:
        nonlocal made
        made += 1
        job = Job(f"j{made}", sizes=SIZES, max_nodes=1 if one_node else 0, warm=rng.random() < 0.5)
        run_s = rng.lognormvariate(log(40_000.0), 1.0)
        beliefs = Beliefs(Estimate(run_s), 1, USUAL_LAW.curve(SIZES, 1), KINDS, 0.9)
        return JobSubmitted(at_s, job, beliefs, Costs(60.0, 20.0, 5.0, 2.0))

    def cycle(at_s: float, *events: Event) -> None:
        actions = controller.cycle(at_s, events)
        while actions:
            actions = controller.cycle(at_s, [done(a, at_s) for a in actions])

    now_s = 0.0
    while controller.snapshot.placed.count < jobs:
        now_s += 10.0
        cycle(now_s, newcomer(now_s))
        if len(controller.snapshot.waiting):
            raise SystemExit(f"benchmarks: {controller.snapshot.placed.count} of {jobs} jobs run, and no more fit")
    watch.took.clear()
    for turn in range(turns):
        now_s += 30.0
        events: list[Event] = []
        if turn % 3:
            running = [v.job.id for v in controller.snapshot.jobs.values() if v.size]
            events.append(JobEnded(now_s, rng.choice(running)))
        if turn % 3 != 1:
            events.append(newcomer(now_s))
        cycle(now_s, *events)
    sorts = (("a newcomer", True), ("idle GPUs, or what a change set off", False))
    return Measured(command, machine(), GOAL_MS, [_sort(name, came, watch.took) for name, came in sorts])


def _sort(name: str, came: bool, took: list[tuple[bool, int, float]]) -> Decisions:
    ms = sorted(s * 1e3 for arrived, _running, s in took if arrived is came)
    least = min(running for arrived, running, _s in took if arrived is came)
    return Decisions(name, len(ms), least, median(ms), ms[int(0.99 * (len(ms) - 1))], ms[-1])


def main(arguments: list[str]) -> None:
    """Measure, and print a table or one object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reshape", description="Decisions with many jobs running."
    )
    parser.add_argument("--jobs", type=int, default=1000, help="running jobs")
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--spanning", action="store_true", help="jobs may span nodes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    command = " ".join(["python -m benchmarks.reshape", *arguments])
    found = measured(chosen.jobs, chosen.turns, not chosen.spanning, command)
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: Measured) -> str:
    """The table."""
    lines = [
        f"$ {found.command}",
        "",
        "| decision about | asked | running jobs | median | p99 | most |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for d in found.decisions:
        times = " | ".join(f"{ms:.2f} ms" for ms in (d.median_ms, d.p99_ms, d.most_ms))
        lines.append(f"| {d.about} | {d.asked} | {d.running:,} | {times} |")
    return "\n".join([*lines, "", f"CPU time of the decision alone; goal: {found.goal_ms:g} ms at 1,000 running jobs."])


if __name__ == "__main__":
    main(sys.argv[1:])
