"""Run one simulation and summarise it: what `simulate`, `compare` and `whatif` share."""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.ports import Header, Journal
from hocket.executors.simulated import BeliefMode, Simulation, simulate
from hocket.model.event import JobEnded, JobRefused
from hocket.model.resources import Node
from hocket.policies.registry import BoundPolicy
from hocket.reports.account import Account, account
from hocket.reports.summary import ProcessCost, Summary, summarise
from hocket.workloads import Workload

_SHOWN_STUCK = 3  # reasons of unfinished jobs
_IN_TASKS = "it consists of tasks, and the policy never placed a task: most policies place whole jobs only"


class SimulationSetup(Struct, frozen=True):
    """All inputs of one run, read and checked."""

    workload: Workload
    nodes: tuple[Node, ...]
    policy: BoundPolicy
    seed: int = 0
    beliefs: BeliefMode = BeliefMode()
    noise: float = 0.0
    until_s: float | None = None

    @property
    def header(self) -> Header:
        """What the journal of the run begins with."""
        return Header(self.policy.policy.name, self.policy.settings, self.nodes, self.seed, self.workload.name)


class FinishedSimulation(Struct, frozen=True):
    """One run and what its journal says."""

    simulation: Simulation
    account: Account
    summary: Summary
    stuck: tuple[str, ...] = ()  # why the first unfinished jobs do not progress


def run_simulation(setup: SimulationSetup, journal: Journal) -> FinishedSimulation:
    """Simulate, and account for it."""
    with rare_garbage_collection():
        simulation = simulate(
            setup.workload,
            setup.nodes,
            setup.policy,
            seed=setup.seed,
            beliefs=setup.beliefs,
            noise=setup.noise,
            until_s=setup.until_s,
            journal=journal,
        )
        accounted = account(journal.header, journal, is_cut=setup.until_s is not None)
        summary = summarise(accounted, simulation.decision_s, beliefs=str(setup.beliefs))
    # Last, since the account is part of the cost.
    cost = process_cost()
    summary = replace(summary, cpu_s=cost.cpu_s, peak_rss_mib=cost.peak_rss_mib)
    stuck = _stuck(simulation) if summary.unfinished and setup.until_s is None else ()
    return FinishedSimulation(simulation, accounted, summary, stuck)


def process_cost() -> ProcessCost:
    """What this process has cost so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return ProcessCost(time.process_time(), peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Let Python's garbage collector run rarely.

    A run makes millions of values that are in no reference cycle and live as long as the journal: searching them
    repeatedly finds nothing. Reference cycles that a policy makes are still collected, only later.
    """
    before, froze = gc.get_threshold(), not gc.get_freeze_count()
    if froze:  # What a caller has frozen stays so.
        gc.freeze()
    gc.set_threshold(2_000_000, 100, 100)
    try:
        yield
    finally:
        if froze:
            gc.freeze()  # Everything counts as old from now on, so the next collection does not search it again.
            gc.unfreeze()
        gc.set_threshold(*before)


def ended_in(cycles: Sequence[object], since: int, until: int) -> int:
    """How many jobs ended in these cycles of a journal, for a progress bar."""
    ended = 0
    for i in range(since, until):
        for event in cycles[i].events:  # type: ignore[attr-defined]
            kind = type(event)
            if kind is JobEnded or kind is JobRefused:
                ended += 1
    return ended


def _stuck(simulation: Simulation) -> tuple[str, ...]:
    """Why the first unfinished jobs do not progress, by the policy's own reasons."""
    views = simulation.final.jobs.values()
    of_all = ""
    for cycle in reversed(list(simulation.journal)):
        if cycle.plan is not None and (of_all := cycle.plan.reasons.get("*", "")):
            break
    shown = views[:_SHOWN_STUCK]
    unplaced = any(v.job.tasks is not None for v in shown) and not _places_tasks(simulation)
    lines = []
    for view in shown:
        why = simulation.final.short_of_quota(view) or view.reason
        if not why:
            why = (_IN_TASKS if unplaced and view.job.tasks is not None else of_all) or "no reason given"
        lines.append(f"'{view.job.id}' is {view.state}: {why}")
    if len(views) > _SHOWN_STUCK:
        lines.append(f"and {len(views) - _SHOWN_STUCK:,} more")
    return tuple(lines)


def _places_tasks(simulation: Simulation) -> bool:
    """Did a plan ever give a task a place?"""
    plans = (cycle.plan for cycle in simulation.journal if cycle.plan is not None)
    return any(tenant.task for plan in plans for partition in plan.put for tenant in partition.tenants)
