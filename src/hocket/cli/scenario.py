"""What to simulate, as the command line says it, and the run itself.

A scenario is plain text, so that it can be sent to another process; `staged` reads all of it before anything runs.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.ports import Header, Journal
from hocket.executors.simulated import BeliefMode, Simulation, parse_beliefs, simulate
from hocket.model.event import JobEnded, JobRefused
from hocket.model.resources import Node
from hocket.policies.registry import BoundPolicy, find
from hocket.reports.account import Account, account
from hocket.reports.summary import Effort, Summary, summarise
from hocket.workloads import (
    Workload,
    WorkloadError,
    check_faults,
    load,
    parse_cluster,
    parse_speeds,
    parse_switching,
    with_switching,
)

_SHOWN_STUCK = 3  # reasons of unfinished jobs


class Scenario(Struct, frozen=True):
    """One run, as text."""

    workload: str
    policy: str  # a name, or name:parameter=value,…
    params: tuple[str, ...] = ()
    cluster: str | None = None
    seed: int = 0
    beliefs: str = "learned"
    noise: float = 0.0
    switching: str | None = None
    speeds: str | None = None
    until_s: float | None = None


class Stage(Struct, frozen=True):
    """One run, read and checked."""

    workload: Workload
    nodes: tuple[Node, ...]
    policy: BoundPolicy
    seed: int
    beliefs: BeliefMode
    noise: float
    until_s: float | None

    @property
    def header(self) -> Header:
        """What the journal of the run begins with."""
        return Header(self.policy.policy.name, self.policy.settings, self.nodes, self.seed, self.workload.name)


class Run(Struct, frozen=True):
    """One run, over."""

    simulation: Simulation
    account: Account
    summary: Summary
    stuck: tuple[str, ...] = ()  # why the first unfinished jobs do not go on


def staged(scenario: Scenario) -> Stage:
    """Read and check everything. Raises ValueError, UnknownPolicy or OSError, each with a line for the user."""
    policy = bound_policy(scenario.policy, scenario.params)
    beliefs = parse_beliefs(scenario.beliefs)
    for name, value in (("noise", scenario.noise), ("until", scenario.until_s)):
        if value is not None and not (isfinite(value) and value >= 0):
            raise ValueError(f"--{name} must be a finite number from 0 up, not {value}")
    nodes = parse_cluster(scenario.cluster) if scenario.cluster is not None else ()
    costs = parse_switching(scenario.switching) if scenario.switching is not None else None
    speeds = parse_speeds(scenario.speeds) if scenario.speeds is not None else None
    workload = load(scenario.workload, seed=scenario.seed)
    nodes = nodes or workload.nodes
    if not nodes:
        raise WorkloadError(f"workload '{scenario.workload}' names no cluster: say which with --cluster, as 4x8")
    if speeds is not None:
        workload = speeds.apply(workload, scenario.seed)
    if costs is not None:
        workload = with_switching(workload, costs)
    check_faults(workload, nodes)
    return Stage(workload, nodes, policy, scenario.seed, beliefs, scenario.noise, scenario.until_s)


def bound_policy(text: str, params: Sequence[str] = ()) -> BoundPolicy:
    """A policy with its parameters: `las`, or `las:promote=4,levels_gpu_s=[1,2]`, and more of them as NAME=VALUE."""
    name, _, own = text.partition(":")
    policy = find(name)
    settings: dict[str, object] = {}
    for pair in [*_split(own), *params]:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"policy '{name}': a parameter must be written as NAME=VALUE, not '{pair}'")
        settings[key.strip()] = _value(name, key, value.strip())
    return policy.bound(settings)


def _split(text: str) -> list[str]:
    """The parts between commas; those within brackets belong to a list."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[{") - (c in "]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts if text else []


def _value(policy: str, key: str, text: str) -> object:
    """Lists and tables are JSON; all else stays text, which the parameter's own type then reads."""
    import msgspec

    if not text.startswith(("[", "{", '"')):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"policy '{policy}', parameter '{key}': the value must be JSON ({error}), not '{text}'"
        ) from error


def play(stage: Stage, journal: Journal) -> Run:
    """Simulate, and account for it."""
    with few_collections():
        simulation = simulate(
            stage.workload,
            stage.nodes,
            stage.policy,
            seed=stage.seed,
            beliefs=stage.beliefs,
            noise=stage.noise,
            until_s=stage.until_s,
            journal=journal,
        )
        accounted = account(journal.header, journal)
        summary = summarise(accounted, simulation.decision_s, beliefs=str(stage.beliefs))
    # Last of all, for the account is a part of the cost.
    cost = effort()
    summary = replace(summary, cpu_s=cost.cpu_s, peak_rss_mib=cost.peak_rss_mib)
    stuck = _stuck(simulation) if summary.unfinished and stage.until_s is None else ()
    return Run(simulation, accounted, summary, stuck)


def effort() -> Effort:
    """What this process has cost so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return Effort(time.process_time(), peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))


@contextmanager
def few_collections() -> Iterator[None]:
    """Let Python look for cycles rarely.

    A run makes millions of values that refer to no cycle and live as long as the journal: going through them again
    and again finds nothing. A policy that makes cycles of its own is still cleaned up after, only later.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(500_000, 100, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def ended_in(cycles: Sequence[object], since: int, until: int) -> int:
    """How many jobs were over in these cycles of a journal: what a progress bar counts."""
    ended = 0
    for i in range(since, until):
        for event in cycles[i].events:  # type: ignore[attr-defined]
            kind = type(event)
            if kind is JobEnded or kind is JobRefused:
                ended += 1
    return ended


def _stuck(simulation: Simulation) -> tuple[str, ...]:
    """Why the first unfinished jobs do not go on, in the policy's own words."""
    views = simulation.final.jobs.values()
    of_all = ""
    for cycle in reversed(list(simulation.journal)):
        if cycle.plan is not None and (of_all := cycle.plan.reasons.get("*", "")):
            break
    lines = [f"'{v.job.id}' is {v.state}: {v.reason or of_all or 'no reason given'}" for v in views[:_SHOWN_STUCK]]
    if len(views) > _SHOWN_STUCK:
        lines.append(f"and {len(views) - _SHOWN_STUCK:,} more")
    return tuple(lines)
