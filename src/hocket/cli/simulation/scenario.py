"""What to simulate, as the command line says it.

A scenario is plain text, so that it can be sent to another process; `staged` reads all of it before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hocket.cli.policy_text import bound_policy
from hocket.executors.simulated import parse_beliefs
from hocket.job_input.units import BadValue, seconds
from hocket.model.event import PastJobsGiven
from hocket.reports.comparison import ComparedRun
from hocket.reports.simulation import SimulationSetup
from hocket.workloads import (
    WorkloadError,
    check_faults,
    load,
    parse_cluster,
    parse_speeds,
    parse_switching,
    with_switching,
)
from hocket.workloads.past_jobs_file import read_past_jobs

_EVERY_S = 0.25  # between reports of progress
MAX_NOISE = 3  # Beyond, a few starts are so slow that a simulation hardly ends.


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
    until: str | None = None  # seconds, or a time such as 8h
    history: str | None = None  # a file of past jobs


def staged(scenario: Scenario) -> SimulationSetup:
    """Read and check everything. Raises ValueError, UnknownPolicy or OSError, each with a line for the user."""
    policy = bound_policy(scenario.policy, scenario.params)
    beliefs = parse_beliefs(scenario.beliefs)
    if not 0 <= scenario.noise <= MAX_NOISE:
        raise ValueError(f"--noise must be a number from 0 to {MAX_NOISE}, not {scenario.noise:g}")
    until_s = _until_s(scenario.until) if scenario.until is not None else None
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
    if scenario.history is not None:
        given = PastJobsGiven(0.0, read_past_jobs(scenario.history))
        workload = replace(workload, changes=(given, *workload.changes))
    check_faults(workload, nodes)
    return SimulationSetup(workload, nodes, policy, scenario.seed, beliefs, scenario.noise, until_s)


def _until_s(text: str) -> float:
    try:
        return seconds(text, zero=True)
    except BadValue as error:
        raise ValueError(f"--until {error}") from error


class ScenarioRun(Struct, frozen=True):
    """A scenario as a worker process of `compare` runs it, and perhaps draws it."""

    scenario: Scenario
    plots: str | None = None  # folder

    @property
    def label(self) -> str:
        """As a failure names it."""
        return f"policy '{self.scenario.policy}'"

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> ComparedRun:
        """Play it; a step is a job that is over."""
        from hocket.cli.simulation.policy_fault import blaming
        from hocket.cli.terminal.errors import refusing
        from hocket.cli.terminal.progress import every
        from hocket.control.journal import MemoryJournal
        from hocket.reports.comparison import compared_run
        from hocket.reports.simulation import ended_in, run_simulation

        with refusing():
            setup = staged(self.scenario)
        began(len(setup.workload.submissions))
        journal = MemoryJournal(setup.header)
        counted = ended = 0

        def tell() -> None:
            nonlocal counted, ended
            now = len(journal.cycles)
            ended += ended_in(journal.cycles, counted, now)
            counted = now
            progressed(ended)

        with every(_EVERY_S, tell), blaming(setup.policy):
            run = run_simulation(setup, journal)
        if self.plots is not None:
            from hocket.reports.plots import plot_run

            plot_run(run.account, Path(self.plots))
        return compared_run(self.scenario.policy, run.account, run.summary, run.stuck)
