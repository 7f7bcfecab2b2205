"""How long one decision takes, by policy and by how many jobs wait, and the cycle around it; summary and journal.

For decisions the cluster is full. In each cycle one job ends and another comes, so the queue keeps its length.
"""

from __future__ import annotations

import tempfile
from math import log
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from msgspec import Struct

from benchmarks.machine import median
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal, SqliteJournal
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.model.event import Event, JobEnded, JobSubmitted
from hocket.model.job import Job
from hocket.model.snapshot import empty_snapshot
from hocket.policies import BoundPolicy, find, policies
from hocket.reports.account import account
from hocket.reports.summary import summarise
from hocket.testing.builders import cluster, submitted
from hocket.testing.harness import done
from hocket.workloads import load

# One decision of MLFS at 1,860 jobs takes its authors 40 to 54 ms: the project's design notes, section 8.
PEER_MS, PEER_QUEUE, GOAL_MS = 40.0, 1860, 5.0
_ROUND_S = 60.0  # between cycles: some policies decide once a minute


class Decisions(Struct, frozen=True):
    """One policy before one queue."""

    policy: str
    waiting: int
    asked: int
    decision_ms: float  # median
    decision_p99_ms: float
    cycle_ms: float  # median: fold, decide, check, diff and journal
    ratio: float | None  # how many times faster than MLFS's published decision; at its queue length only


def decisions(quick: bool) -> list[Decisions]:
    """Every policy, before queues of several lengths."""
    lengths, turns = ((50, 200), 10) if quick else ((100, PEER_QUEUE, 10_000), 200)
    return [_decisions(p.bound(), n, turns) for p in policies().values() for n in lengths]


def _decisions(bound: BoundPolicy, waiting: int, turns: int) -> Decisions:
    rng = Random("benchmarks")
    nodes = cluster("160x8")
    controller = Controller(empty_snapshot(nodes), bound.decide, bound.order, MemoryJournal(Header(bound.policy.name)))
    made = 0

    def newcomer(at_s: float) -> JobSubmitted:
        nonlocal made
        made += 1
        gpus = rng.choices((1, 2, 4, 8), (87, 2, 5, 6))[0]
        job = Job(f"j{made}", f"team{rng.randrange(15)}", sizes=(gpus,))
        return submitted(job, at_s, round(rng.lognormvariate(log(1200.0), 1.5), 3))

    def cycle(at_s: float, *events: Event) -> None:
        """One pass, and those that follow from what it begins."""
        actions = controller.cycle(at_s, events)
        while actions:
            actions = controller.cycle(at_s, [done(a, at_s) for a in actions])

    now_s, missing = 0.0, waiting
    while missing > 0 or len(controller.snapshot.waiting) < waiting:
        now_s += _ROUND_S
        missing = waiting - len(controller.snapshot.waiting)
        cycle(now_s, *(newcomer(now_s) for _ in range(missing)))
    before = len(controller.decision_s)
    cycles = []
    for _ in range(turns):
        now_s += _ROUND_S
        running = [v.job.id for v in controller.snapshot.jobs.values() if v.size]
        events = (JobEnded(now_s, rng.choice(running)), newcomer(now_s))
        began = perf_counter()
        actions = controller.cycle(now_s, events)
        cycles.append(perf_counter() - began)
        while actions:
            actions = controller.cycle(now_s, [done(a, now_s) for a in actions])
    took_ms = sorted(s * 1e3 for s in controller.decision_s[before:])
    middle = median(took_ms)
    return Decisions(
        bound.policy.name, waiting, len(took_ms), middle, took_ms[int(0.99 * (len(took_ms) - 1))],
        median(cycles) * 1e3, PEER_MS / middle if waiting == PEER_QUEUE else None,
    )  # fmt: skip


KUEUE_PER_S, GOAL_PER_S = 43.0, 1000.0  # admissions in its own benchmark: the project's design notes, section 8


class Summing(Struct, frozen=True):
    """A run and its summary, in CPU-seconds of one process."""

    jobs: int
    simulate_s: float
    account_s: float
    summarise_s: float
    share: float  # of account and summary in all of it


class Journalling(Struct, frozen=True):
    """Submissions through the controller, each a cycle that is on disk before it returns."""

    submissions: int
    per_s: float  # of wall time, for the disk is waited for
    ratio: float  # to Kueue's published admissions


def summing(quick: bool) -> Summing:
    """A generated trace under LAS at 91 % load."""
    jobs = 1000 if quick else 20_000
    workload, nodes = load(f"poisson?jobs={jobs}&gap=5.05&owners=15"), cluster("160x8")
    began = process_time()
    run = simulate(workload, nodes, find("las").bound())
    simulated = process_time()
    accounted = account(run.journal.header, run.journal)
    counted = process_time()
    summarise(accounted, run.decision_s)
    ended = process_time()
    return Summing(jobs, simulated - began, counted - simulated, ended - counted, (ended - simulated) / (ended - began))


def journalling(quick: bool) -> Journalling:
    """One-GPU jobs, one submission a cycle, into SQLite."""
    count = 100 if quick else 2000
    bound, nodes = find("fifo").bound(), cluster("160x8")
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        journal = SqliteJournal(Path(folder) / "journal.db", Header("fifo", nodes=tuple(nodes)))
        controller = Controller(empty_snapshot(nodes), bound.decide, bound.order, journal)
        began = perf_counter()
        for n in range(count):
            controller.cycle(float(n), [submitted(Job(f"j{n}"), float(n))])
        took_s = perf_counter() - began
        journal.close()
    return Journalling(count, count / took_s, count / took_s / KUEUE_PER_S)
