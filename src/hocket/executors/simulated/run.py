"""One simulation: a workload, a cluster, a policy; through the same cycle as live."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.control.controller import Controller
from hocket.control.drive import drive
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header, Journal
from hocket.executors.simulated.beliefs import BeliefMode
from hocket.executors.simulated.executor import SimulatedExecutor
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies.registry import BoundPolicy, bind
from hocket.workloads.truth import Workload


class Simulation(Struct, frozen=True):
    """What a run leaves behind."""

    journal: Journal
    final: Snapshot
    decision_s: list[float]
    refused_plans: int


def simulate(
    workload: Workload,
    nodes: Sequence[Node],
    policy: BoundPolicy,
    *,
    seed: int = 0,
    beliefs: BeliefMode = BeliefMode(),
    noise: float = 0.0,
    until_s: float | None = None,
    journal: Journal | None = None,
) -> Simulation:
    """Run a workload to its end, or to `until_s`. What a policy raises has a note that says when."""
    if journal is None:
        journal = MemoryJournal(Header(policy.policy.name, policy.settings, tuple(nodes), seed, workload.name))
    controller = Controller(
        empty_snapshot(nodes, seed), policy.decide, policy.order, journal, **policy.needs, bind=bind
    )
    executor = SimulatedExecutor(workload, nodes, seed=seed, beliefs=beliefs, noise=noise, until_s=until_s)
    try:
        drive(controller, executor)
    except Exception as error:
        error.add_note(f"at {executor.now_s:,.10g} s of simulated time")
        raise
    return Simulation(journal, controller.snapshot, controller.decision_s, controller.refused_plans)
