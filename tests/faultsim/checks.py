"""What must hold while a simulation runs, and at its end. Whatever does not is told in one sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.faultsim.journal_store import SimulatedJournal, Store

from hocket.control.controller import Controller
from hocket.control.ports import Cycle
from hocket.control.restore import restore_and_count
from hocket.control.state import Facts
from hocket.model.capacity import Capacity
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobResized,
    JobSaved,
    JobStarted,
    JobSubmitted,
    ProgressReported,
)
from hocket.testing.invariants import broken_indices, broken_invariants

if TYPE_CHECKING:
    from tests.faultsim.cluster import Cluster
    from tests.faultsim.scenario import JobPlan, Request
    from tests.faultsim.sidecar_model import JobProcess

    from hocket.service.engine import Engine

WAKING_S = 2.1  # for which a job may run when a whole machine wakes, as docs/machines.md says
_EVERY = 7  # cycles, between looks at the whole state


class Checks:
    """Told of all that happens, by the cluster, the sidecars and the journal."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._kernel = cluster, cluster.kernel
        self._processes: dict[str, dict[JobProcess, None]] = defaultdict(dict)  # job → its processes that live
        self._facts: Counter[tuple[str, str]] = Counter()  # kind, job → how often it truly happened
        self._crashes: Counter[str] = Counter()  # job → times that its process failed by itself
        self.accepted: dict[str, JobPlan] = {}
        self._asked: dict[str, set[str]] = defaultdict(set)  # job → what users asked, and were told is accepted
        self.is_journal_cut = False  # an older one was restored
        self.woke_s: dict[str, float] = {}  # node → when it last woke
        self._ended: set[str] = set()  # jobs that have ended, also in cycles that a journal has lost since
        self._begun: set[tuple[str, int, str]] = set()  # job, number and node of each run that began
        self.runs = 0

    def fail(self, what: str) -> None:
        """Something is wrong: the simulation ends here."""
        self._kernel.errors.append(f"at {self._kernel.now_s:.3f} s: {what}")

    # -- nothing runs twice at once -------------------------------------------------------------------------------

    def job_process_began(self, began: JobProcess) -> None:
        """A job's process runs."""
        self.runs += 1
        self._kernel.trace(began.process, "runs")
        run = began.plan.job.id, began.attempt, began.sidecar.node
        if run in self._begun and run[0] not in self._ended:  # With an older journal, one that had ended runs again.
            self.fail(f"run {run[1]} of job '{run[0]}' begins a second time on {run[2]}: its number was given twice")
        self._begun.add(run)
        self._processes[began.plan.job.id][began] = None
        self._look_for_another(began)

    def power_lost(self, node: str) -> None:
        """What a run did just before may be on no disk: it begins again under its number."""
        self._begun = {run for run in self._begun if run[2] != node}

    def job_process_changed(self, changed: JobProcess) -> None:
        """It was frozen, or goes on."""
        self._kernel.trace(changed.process, "is frozen" if changed.process.is_stopped else "goes on")
        if not changed.process.is_stopped:
            self._look_for_another(changed)

    def job_process_ended(self, ended: JobProcess) -> None:
        """It is no more."""
        del self._processes[ended.plan.job.id][ended]

    def _look_for_another(self, one: JobProcess) -> None:
        for other in self._processes[one.plan.job.id]:
            if other is not one and self._run_at_once(one, other):
                woke_s = max(self.woke_s.get(p.sidecar.node, -WAKING_S) for p in (one, other))
                if self._kernel.now_s - woke_s < WAKING_S:
                    self._kernel.at(woke_s + WAKING_S, lambda other=other: self._look_again(one, other))  # type: ignore[misc]
                else:
                    self._tell_of(one, other)

    def _look_again(self, one: JobProcess, other: JobProcess) -> None:
        if self._run_at_once(one, other):
            self._tell_of(one, other)

    def _run_at_once(self, one: JobProcess, other: JobProcess) -> bool:
        runs = all(p.process.is_alive and not p.process.is_stopped for p in (one, other))
        return runs and (one.attempt != other.attempt or one.sidecar.node == other.sidecar.node)

    def _tell_of(self, one: JobProcess, other: JobProcess) -> None:
        self.fail(
            f"job '{one.plan.job.id}' runs twice at once: run {other.attempt} on {other.sidecar.node} "
            f"and run {one.attempt} on {one.sidecar.node}"
        )

    def job_processes(self, node: str) -> list[JobProcess]:
        """Those that live on a node."""
        return [p for processes in self._processes.values() for p in processes if p.sidecar.node == node]

    # -- what truly happened --------------------------------------------------------------------------------------

    def count(self, kind: str, job: str, _attempt: int) -> None:
        """A sidecar writes a fact down."""
        self._facts[kind, job] += 1

    def may_crash(self, plan: JobPlan) -> bool:
        """A job fails by itself once."""
        return not self._crashes[plan.job.id]

    def job_crashed(self, crashed: JobProcess) -> None:
        """A job's process failed by itself, or was killed by the system."""
        self._kernel.trace(crashed.process, "fails by itself")
        self._crashes[crashed.plan.job.id] += 1

    def submitted(self, plan: JobPlan) -> None:
        """A user was told that a job is accepted."""
        self.accepted[plan.job.id] = plan

    def asked(self, request: Request) -> None:
        """A user was told that a request is accepted."""
        self._asked[request.name].add(request.what)

    # -- the controller and its journal ---------------------------------------------------------------------------

    def cycle_written(self, number: int, cycle: Cycle) -> None:
        """A cycle is in the journal, and the state is that after it."""
        self._ended |= {event.job for event in cycle.events if isinstance(event, JobEnded)}
        policy = self._cluster.scenario.policy
        if cycle.refused and policy != "restless":  # That one asks for what may not be.
            self.fail(f"cycle {number}: the plan of policy '{policy}' is refused: {cycle.refused}")
        engine = self._cluster.controller.engine
        if engine is not None and number % _EVERY == 0:
            state = engine._controller.state
            found = broken_invariants(engine._controller.snapshot) + broken_indices(state)
            for broken in found:
                if state.counts_usage or "usage says" not in broken:  # Most policies have no use for that sum.
                    self.fail(f"cycle {number}: {broken}")

    def controller_restored(self, engine: Engine, store: Store) -> None:
        """A controller starts with what the journal has."""
        if engine._controller.cycles != len(store.rows):
            self.fail(f"the journal has {len(store.rows)} cycles, the controller {engine._controller.cycles}")

    def controller_ended(self, engine: Engine, store: Store) -> None:
        """A controller was killed: if all that it had decided is written, the journal folds to its state."""
        if engine._controller.cycles == len(store.rows) and not store.is_behind:
            self.compare_fold(engine, store)

    def compare_fold(self, engine: Engine, store: Store) -> None:
        """The journal, folded from its first cycle, gives the state that the controller has."""
        copied = Store()
        copied.header, copied.rows = store.header, list(store.rows)
        journal = SimulatedJournal(self._kernel, copied, engine.journal.header)
        current, self._kernel.current = self._kernel.current, None  # It is the observer that reads.
        try:
            restored, _ = restore_and_count(journal, engine._first, engine._on_policy_error, engine._bind)
            live, again = _state(engine._controller), _state(restored)
        finally:
            self._kernel.current = current
        for name, value in live.items():
            if value != again[name]:
                has = f"'{name}' is {value}, and by the journal {again[name]}"
                self.fail(f"the journal's {len(store.rows)} cycles do not fold to the controller's state: {has}")
                return

    # -- at the end -----------------------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Jobs that users were told are accepted, and that have not ended."""
        engine = self._cluster.controller.engine
        if engine is None:
            return ["(no controller)"]
        live = engine.snapshot.jobs
        return [job for job in sorted({*self.accepted, *(view.id for view in live.values())}) if job in live]

    def finish(self) -> None:
        """All faults are over and all jobs should be: compare the journal with what truly happened."""
        engine, store = self._cluster.controller.engine, self._cluster.controller.store
        assert engine is not None
        self.compare_fold(engine, store)
        for job, processes in self._processes.items():
            for process in processes:
                self.fail(f"run {process.attempt} of job '{job}' is left on {process.sidecar.node}")
        for node in self._cluster.nodes.values():
            for process in node.machine.processes.values():
                if process.name.startswith("sidecar"):
                    self.fail(f"{process.name} is left")
        events: dict[str, list[Event]] = defaultdict(list)
        for cycle in engine.journal:
            for event in cycle.events:
                job = event.job.id if isinstance(event, JobSubmitted) else getattr(event, "job", None)
                if isinstance(job, str):
                    events[job].append(event)
        if not self.is_journal_cut:
            for job, plan in self.accepted.items():
                self._check_job(plan, events.get(job, []))

    def _check_job(self, plan: JobPlan, events: list[Event]) -> None:
        job = plan.job.id
        submissions = _of(events, JobSubmitted)
        if len(submissions) != 1:
            self.fail(f"job '{job}' was accepted, and is {len(submissions)} times in the journal")
        ends = [e for e in events if isinstance(e, JobEnded) or (isinstance(e, JobFailed) and e.final)]
        if len(ends) != 1:
            self.fail(f"job '{job}' ended {len(ends)} times: {ends}")
            return
        verdict = "failed" if isinstance(ends[-1], JobFailed) else str(ends[-1].verdict)
        allowed = {"finished", "stopped"} if "stop" in self._asked[job] else {"finished"}
        if self._crashes[job] > (plan.job.retries or 0):
            allowed.add("failed")
        if verdict not in allowed:
            self.fail(
                f"job '{job}' has ended as {verdict}: {ends[-1]}, and should have as {' or '.join(sorted(allowed))}"
            )
        own = [e for e in _of(events, JobFailed) if e.own]
        if len(own) > self._crashes[job]:
            self.fail(f"job '{job}' failed {self._crashes[job]} times by itself, and lost {len(own)} retries: {own}")
        begun = [e.attempt for e in events if isinstance(e, JobStarted | JobResized | JobMoved) and e.attempt]
        if twice := [n for n, count in Counter(begun).items() if count > 1]:
            self.fail(f"job '{job}': runs {twice} are in the journal as started more than once")
        self._check_count(job, "saved", len(_of(events, JobSaved)))
        if plan.job.launch is not None and plan.job.launch.checkpoint_signal:
            self._check_count(job, "checkpoint-asked", len(_of(events, JobCheckpointed)))
        self._check_count(job, "progress", len(_of(events, EpochEnded)) + len(_of(events, ProgressReported)))

    def _check_count(self, job: str, kind: str, counted: int) -> None:
        # That a job has saved is said again to a controller that began anew before it had answered, and counts again.
        times = 1 if kind == "progress" else self._cluster.controller.store.recoveries
        if counted > (truly := self._facts[kind, job]) * times:
            self.fail(f"job '{job}': '{kind}' happened {truly} times, and is counted {counted} times")


def _state(controller: Controller) -> dict[str, Any]:
    """All that a controller has between two cycles, by name, as far as it matters."""
    controller.drop_outdated_timers()
    state = controller.state
    found = {name: getattr(state, name) for name in Facts.__slots__}
    found |= {"timers": sorted(set(controller.timers.heap)), "verdict_s": controller.timers.verdict_s}
    for name, value in found.items():
        if hasattr(value, "seal"):
            sealed = value.seal()  # The order of a map counts too.
            found[name] = list(sealed.items()) if hasattr(sealed, "items") else sealed.buckets()
        elif isinstance(value, Capacity):
            found[name] = (list(value), value.gpus, value.up)
    return found


def _of(events: list[Event], kind: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
