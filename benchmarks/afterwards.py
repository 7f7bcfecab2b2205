"""What comes after, or beside, a simulation: the account and summary of its journal, and a journal on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter, process_time

from msgspec import Struct

from hocket.control.controller import Controller
from hocket.control.journal import SqliteJournal
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.model.job import Job
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find
from hocket.reports.account import account
from hocket.reports.summary import summarise
from hocket.testing.builders import cluster, submitted
from hocket.workloads import load

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
