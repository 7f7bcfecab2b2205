"""One seed from its beginning to its end: faults begin and end, all heals, all jobs must end."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter, deque
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.faultsim.cluster import Cluster
from tests.faultsim.journal_store import Trouble
from tests.faultsim.kernel import Kernel, Process, Trap
from tests.faultsim.network import DOWN, UP
from tests.faultsim.planted_faults import plant
from tests.faultsim.scenario import FAULTY_S, Fault, scenario
from tests.faultsim.stand_ins import System, deliver, installed

_BOUND_S = 3000.0  # for all jobs to end once nothing fails any more
_AFTER_S = 45.0  # for what is left of ended jobs to go
_POLICIES = Path(__file__).parents[1] / "live" / "policies"


class Outcome(Struct):
    """What came of a seed."""

    seed: int
    wrong: list[str]  # what did not hold
    faults: Counter[str]  # that took place, by kind
    simulated_s: float
    jobs: int
    runs: int
    cycles: int
    steps: int
    digest: str  # of the journal and all that was decided by chance: the same for the same seed
    trace: list[str]


class Faults:
    """Begins and ends the faults of a scenario."""

    def __init__(self, cluster: Cluster, faults: tuple[Fault, ...]) -> None:
        self._cluster, self._kernel = cluster, cluster.kernel
        self.counts: Counter[str] = Counter()
        self.healed_s = max([FAULTY_S, *(fault.at_s + fault.for_s for fault in faults)]) + 1.0
        for fault in faults:
            self._kernel.at(fault.at_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]
        self._kernel.at(self.healed_s, self._heal)

    def _begin(self, fault: Fault) -> None:
        self._kernel.trace(None, f"fault: {fault}")
        begin = getattr(self, "_" + fault.kind.replace(" ", "_"))
        begin(fault)

    def _count(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1

    def _later(self, fault: Fault, call: Any) -> None:
        self._kernel.at(self._kernel.now_s + fault.for_s, call)

    def _heal(self) -> None:
        """Whatever was to come does not come any more."""
        self._kernel.trace(None, "all faults are over")
        network = self._cluster.network
        network.late = network.twice = 0.0
        for node, direction in list(network.cut):
            network.mend(node, direction)
        for node in self._cluster.nodes.values():
            node.machine.disk.is_full = False
            for process in list(node.machine.processes.values()):
                process.trap = None
        if self._cluster.controller.process is not None:
            self._cluster.controller.process.trap = None
        self._cluster.controller.store.trouble = Trouble.NONE
        if self._cluster.checks.is_journal_cut:
            self._cluster.release_all()

    # -- agents -----------------------------------------------------------------------------------------------------

    def _agent_killed(self, fault: Fault) -> None:
        node = self._cluster.nodes[fault.node]

        def spring(process: Process) -> None:
            self._count(fault)
            node.down_until_s = self._kernel.now_s + fault.for_s
            process.end()

        self._set_trap(node.agent, fault, spring)

    def _agent_stopped(self, fault: Fault) -> None:
        self._set_trap(self._cluster.nodes[fault.node].agent, fault, lambda process: self._stop(fault, process))

    def _stop(self, fault: Fault, process: Process) -> None:
        self._count(fault)
        self._kernel.trace(process, "is stopped")
        process.stop()
        self._later(fault, process.go_on)

    def _set_trap(self, process: Process | None, fault: Fault, spring: Any) -> None:
        if process is not None and process.is_alive:
            process.trap = Trap(fault.calls, spring)

    def _agent_told_to_leave(self, fault: Fault) -> None:
        self._tell(fault, signal.SIGTERM)

    def _agent_told_to_stop_its_jobs(self, fault: Fault) -> None:
        self._tell(fault, signal.SIGINT)

    def _tell(self, fault: Fault, number: int) -> None:
        node = self._cluster.nodes[fault.node]
        if node.agent is not None and node.agent.is_alive:
            self._count(fault)
            node.down_until_s = self._kernel.now_s + fault.for_s
            deliver(node.agent, number)

    # -- machines ---------------------------------------------------------------------------------------------------

    def _power_lost(self, fault: Fault) -> None:
        node = self._cluster.nodes[fault.node]
        if node.machine.is_on:
            self._count(fault)
            node.lose_power(fault.for_s)

    def _machine_suspended(self, fault: Fault) -> None:
        self._count(fault)
        machine = self._cluster.nodes[fault.node].machine
        stopped = [p for p in machine.processes.values() if not p.is_stopped]
        for process in stopped:
            process.stop()

        def wake() -> None:
            self._kernel.trace(None, f"machine {fault.node} wakes")
            self._cluster.checks.woke_s[fault.node] = self._kernel.now_s
            for process in stopped:
                process.go_on()

        self._later(fault, wake)

    def _disk_full(self, fault: Fault) -> None:
        self._count(fault)
        disk = self._cluster.nodes[fault.node].machine.disk
        disk.is_full = True
        self._later(fault, lambda: setattr(disk, "is_full", False))

    def _clock_set(self, fault: Fault) -> None:
        self._count(fault)
        self._cluster.nodes[fault.node].machine.wall_offset_s += fault.number

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _sidecar_killed(self, fault: Fault) -> None:
        machine = self._cluster.nodes[fault.node].machine
        found = [p for p in machine.processes.values() if p.name.startswith("sidecar")]
        if found:
            self._count(fault)
            self._cluster.rng.choice(found).end()

    def _job_process_killed(self, fault: Fault) -> None:
        checks = self._cluster.checks
        found = checks.job_processes(fault.node)
        if found:
            self._count(fault)
            killed = self._cluster.rng.choice(found)
            checks.job_crashed(killed)
            killed.process.end()

    # -- the network ------------------------------------------------------------------------------------------------

    def _network_cut(self, fault: Fault) -> None:
        self._cut(fault, UP, DOWN)

    def _agent_unheard(self, fault: Fault) -> None:
        self._cut(fault, UP)

    def _controller_unheard(self, fault: Fault) -> None:
        self._cut(fault, DOWN)

    def _cut(self, fault: Fault, *directions: str) -> None:
        self._count(fault)
        network = self._cluster.network
        network.cut |= {(fault.node, direction) for direction in directions}
        for direction in directions:
            self._later(fault, lambda direction=direction: network.mend(fault.node, direction))

    # -- the controller ---------------------------------------------------------------------------------------------

    def _controller_killed(self, fault: Fault) -> None:
        controller = self._cluster.controller

        def spring(process: Process) -> None:
            self._count(fault)
            controller.down_until_s = self._kernel.now_s + fault.for_s
            process.end()

        self._set_trap(controller.process, fault, spring)

    def _controller_stopped(self, fault: Fault) -> None:
        self._set_trap(self._cluster.controller.process, fault, lambda process: self._stop(fault, process))

    def _journal_full(self, fault: Fault) -> None:
        self._trouble(fault, Trouble.FULL)

    def _commit_in_doubt(self, fault: Fault) -> None:
        self._trouble(fault, Trouble.IN_DOUBT)

    def _trouble(self, fault: Fault, trouble: Trouble) -> None:
        self._count(fault)
        store = self._cluster.controller.store
        store.trouble = trouble
        self._later(fault, lambda: setattr(store, "trouble", Trouble.NONE))

    def _older_journal(self, fault: Fault) -> None:
        """The controller is ended, and started with a journal that lacks its last cycles, when all leases are over."""
        controller = self._cluster.controller

        def spring(process: Process) -> None:
            self._count(fault)
            controller.down_until_s = self._kernel.now_s + self._cluster.scenario.lease_s + fault.for_s
            store = controller.store
            self._kernel.at(self._kernel.now_s, lambda: restore(store))
            process.end()

        def restore(store: Any) -> None:
            kept = max(1, len(store.rows) - int(fault.number))
            self._kernel.trace(None, f"the journal is restored to its first {kept} cycles of {len(store.rows)}")
            self._cluster.checks.is_journal_cut = True
            del store.rows[kept:]
            store.states = [state for state in store.states if state[0] <= kept]

        self._set_trap(controller.process, fault, spring)


class Trace:
    """The last lines of what happened: what the product logs, and what the simulator does."""

    def __init__(self, kernel: Kernel, most: int) -> None:
        self.lines: deque[str] = deque(maxlen=most)
        self._kernel = kernel

    def add(self, process: Process | None, what: str) -> None:
        """One line."""
        name = "–" if process is None else process.name
        self.lines.append(f"{self._kernel.now_s:9.3f}  {name:22}  {what}")


class LogHandler(logging.Handler):
    """Takes what the product logs: into the trace, and an exception that it did not expect into what is wrong."""

    def __init__(self, kernel: Kernel, trace: Trace | None) -> None:
        super().__init__()
        self._kernel, self._trace = kernel, trace

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        thread = self._kernel.current
        if self._trace is not None:
            self._trace.add(None if thread is None else thread.process, record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            self._kernel.errors.append(f"{record.getMessage()}:\n{text}")


def simulate(
    seed: int, only: tuple[int, ...] | None = None, lines: int = 0, planted: frozenset[str] = frozenset()
) -> Outcome:
    """Run a seed; with `only` these of its faults, by their number; keep so many lines of its trace."""
    drawn = scenario(seed)
    faults = drawn.faults if only is None else tuple(f for n, f in enumerate(drawn.faults) if n in only)
    os.environ["HOCKET_POLICIES"] = str(_POLICIES)
    kernel = Kernel(str(seed))
    kernel.preempt = drawn.preempt
    system = System(kernel, str(seed))
    trace = Trace(kernel, lines) if lines else None
    if trace is not None:
        kernel.trace = trace.add
    log, handler = logging.getLogger("hocket"), LogHandler(kernel, trace)
    before = log.level, log.propagate
    log.setLevel(logging.INFO if lines else logging.ERROR)
    log.propagate = False
    log.addHandler(handler)
    cluster = Cluster(drawn, kernel, system)
    try:
        with installed(system, cluster.replaced()), plant(planted):
            counts = _run(cluster, faults)
            simulated_s = kernel.now_s
            wrong = list(kernel.errors)
            kept = [] if trace is None else list(trace.lines)
            kernel.errors.clear()
            kernel.close()
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
    store = cluster.controller.store
    digest = blake2b(b"".join(row[1] for row in store.rows) + str(kernel.rng.random()).encode(), digest_size=8)
    return Outcome(
        seed=seed, wrong=wrong, faults=counts, simulated_s=simulated_s, jobs=len(drawn.jobs), runs=cluster.checks.runs,
        cycles=len(store.rows), steps=kernel.steps, digest=digest.hexdigest(),
        trace=kept,
    )  # fmt: skip


def _run(cluster: Cluster, faults: tuple[Fault, ...]) -> Counter[str]:
    kernel = cluster.kernel
    cluster.start()
    plan = Faults(cluster, faults)
    kernel.run(plan.healed_s)
    until_s = kernel.now_s + _BOUND_S
    while not kernel.errors and kernel.now_s < until_s and (cluster.unanswered or cluster.checks.left()):
        kernel.run(kernel.now_s + 2.0)
    if not kernel.errors and (cluster.unanswered or (left := cluster.checks.left())):
        if cluster.unanswered:
            kernel.errors.append(f"{cluster.unanswered} requests of users are not answered")
        else:
            kernel.errors.append(f"stuck: jobs {left} have not ended within {_BOUND_S:g} s: {_standing(cluster)}")
    if not kernel.errors:
        kernel.run(kernel.now_s + _AFTER_S)
    if not kernel.errors:
        cluster.checks.finish()
    counts = plan.counts
    counts.update({f"message {kind}": n for kind, n in cluster.network.counts.items() if kind != "calls" and n})
    return counts


def _standing(cluster: Cluster) -> str:
    """The jobs that are left, as the controller has them."""
    engine = cluster.controller.engine
    if engine is None:
        return "there is no controller"
    return "; ".join(
        f"{v.id} is {v.state}, {v.tenancies or 'without a place'}: {v.reason}" for v in engine.snapshot.jobs.values()
    )
