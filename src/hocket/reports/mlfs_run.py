"""The result of one run of MLFS's evaluation, computed while it runs: no cycle is kept.

A table of a hundred thousand jobs has millions of cycles, of which the paper's figures need a few sums. Data that
tasks exchange count where the plan has them on different servers, once an epoch. The state of a task that moves is not
counted: its size is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from msgspec import Struct

from hocket.control.ports import Cycle, Header
from hocket.model.event import (
    EpochEnded,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobRefused,
    JobStarted,
    JobSubmitted,
    ProgressReported,
)
from hocket.model.job import Job, TaskGraph
from hocket.model.partition import Partition, Sharing
from hocket.model.plan import Verdict
from hocket.model.snapshot import demand_of
from hocket.reports.summary import quantile
from hocket.workloads.task_graphs import ADDING_UP

SOON_S = 6000.0  # the paper counts jobs done in less than 100 minutes
URGENT = 9  # "higher than 8"
OVERLOADED = 0.9  # h_r
_QUANTILES = 200
_MIB_PER_TIB = 1024.0**2


class MlfsRun(Struct, frozen=True):
    """One workload under one approach. Shares are of all jobs, and what never ended met nothing."""

    jobs: int
    unfinished: int
    makespan_s: float
    jct_s: tuple[float, ...]  # quantiles of those that ended, evenly apart
    jct_mean_s: float
    soon: float  # share done in less than 100 minutes
    waited_s: float  # mean; while none of its tasks ran
    deadlines: float  # share
    urgent_deadlines: float  # of the urgent ones
    accuracy: float  # best by the deadline, mean; 0 of those that reported nothing by then
    accuracies: float  # share that had what it asked for by the deadline
    goals: int  # reached, whenever
    sent_tib: float  # between servers
    moves: int
    overloads: int  # how often a server became overloaded
    stopped: int  # ended by load control
    decisions: int = 0
    decision_ms: float = 0.0  # mean, by the clock
    cpu_s: float = 0.0
    peak_mib: float = 0.0


class LiveJob(Struct, gc=False):
    """A job that is not over yet."""

    job: Job
    submitted_s: float
    since_s: float  # it waits since, if it does
    running: int = 0  # tenants
    waited_s: float = 0.0
    best: float = 0.0
    has_goal: bool = False
    by_deadline: float = 0.0
    had_goal: bool = False  # by the deadline
    partitions: dict[str, None] = {}
    crossing_mib: float | None = None  # in an epoch, as it is placed; None: to be worked out


class RunStatistics:
    """A journal that keeps sums instead of cycles. `graphs` has the tasks of all jobs, also of those in one piece."""

    def __init__(
        self,
        header: Header,
        graphs: Mapping[str, TaskGraph],
        uses: Mapping[str, float],
        told: Callable[[int], None] = lambda _n: None,
    ) -> None:
        self.header = header
        self._graphs, self._uses, self._told = graphs, uses, told
        self._live: dict[str, LiveJob] = {}
        self._placed: dict[str, Partition] = {}
        self._hot: dict[str, set[str]] = {}  # server → its overloaded GPUs
        self._jcts_s: list[float] = []
        self._first_s = self._last_s = 0.0
        self._jobs = self._over = self._moves = self._overloads = self._stopped = self._goals = 0
        self._deadlines = self._urgent = self._urgent_met = self._had_goal = 0
        self._waited_s = self._accuracy = self._mib = 0.0

    def __iter__(self) -> Iterator[Cycle]:
        return iter(())

    def append(self, cycle: Cycle) -> None:
        """Take in one cycle."""
        for event in cycle.events:
            match event:
                case EpochEnded(job=name) | ProgressReported(job=name):
                    self._reported(name, event)
                case JobStarted(job=name):
                    self._started(name, event.at_s)
                case JobEnded(job=name):
                    self._ended(name, event.at_s, event.verdict)
                case JobSubmitted(job=job):
                    if not self._jobs:
                        self._first_s = event.at_s
                    self._jobs += 1
                    self._live[job.id] = LiveJob(job, event.at_s, event.at_s)
                case JobPaused(job=name):
                    live = self._live[name]
                    live.running -= 1
                    if not live.running:
                        live.since_s = event.at_s
                case JobMoved():
                    self._moves += 1
                case JobFailed(job=name) | JobRefused(job=name):  # Nothing breaks here, and all fit.
                    raise ValueError(f"job '{name}': {event.reason}")
                case _:
                    pass
        if cycle.plan is not None and not cycle.refused:
            for pid in cycle.plan.drop:
                if pid in self._placed:
                    self._cooled(self._placed[pid])
                    self._emptied(pid)
            for partition in cycle.plan.put:
                self._put(partition)

    def _reported(self, name: str, event: EpochEnded | ProgressReported) -> None:
        live = self._live.get(name)
        if live is None:
            return
        if isinstance(event, EpochEnded):
            if live.crossing_mib is None:
                live.crossing_mib = self._crossing_mib(live)
            self._mib += live.crossing_mib
        goal = live.job.goal
        value = event.metrics.get(goal.metric) if goal is not None else None
        if goal is None or value is None:
            return
        live.best = max(live.best, value)
        live.has_goal = live.has_goal or goal.met_by(value)
        if live.job.deadline_s is None or event.at_s - live.submitted_s <= live.job.deadline_s:
            live.by_deadline, live.had_goal = live.best, live.has_goal

    def _started(self, name: str, at_s: float) -> None:
        live = self._live.get(name)
        if live is not None:
            if not live.running:
                live.waited_s += at_s - live.since_s
            live.running += 1

    def _ended(self, name: str, at_s: float, verdict: str) -> None:
        live = self._live.pop(name, None)
        if live is None:
            return
        for pid in live.partitions:
            partition = self._placed[pid]
            others = tuple(t for t in partition.tenants if t.job != name)
            if others:
                self._placed[pid] = Partition(pid, partition.slices, others, partition.sharing)
                self._weigh(self._placed[pid])
            else:
                del self._placed[pid]
                self._cooled(partition)
        jct_s = at_s - live.submitted_s
        self._jcts_s.append(jct_s)
        self._last_s = at_s
        self._waited_s += live.waited_s + (0.0 if live.running else at_s - live.since_s)
        self._close(live, jct_s)
        self._stopped += verdict in (Verdict.ATTAINED, Verdict.EARLY_STOPPED, Verdict.HOPELESS)
        self._over += 1
        if self._over % 64 == 0:
            self._told(self._over)

    def _close(self, live: LiveJob, jct_s: float) -> None:
        """Count a job that is over; `jct_s` is infinite for one that never ended."""
        in_time = jct_s < inf and (live.job.deadline_s is None or jct_s <= live.job.deadline_s)
        urgent = live.job.urgency >= URGENT
        self._deadlines += in_time
        self._urgent += urgent
        self._urgent_met += urgent and in_time
        self._accuracy += live.by_deadline
        self._had_goal += live.had_goal
        self._goals += live.has_goal

    # -- where tasks are ------------------------------------------------------------------------------------

    def _put(self, partition: Partition) -> None:
        self._emptied(partition.id)
        self._placed[partition.id] = partition
        for tenant in partition.tenants:
            if (live := self._live.get(tenant.job)) is not None:
                live.partitions = {**live.partitions, partition.id: None}
                live.crossing_mib = None
        self._weigh(partition)

    def _emptied(self, pid: str) -> None:
        partition = self._placed.pop(pid, None)
        if partition is None:
            return
        for tenant in partition.tenants:
            if (live := self._live.get(tenant.job)) is not None:
                live.partitions = {p: None for p in live.partitions if p != pid}
                live.crossing_mib = None

    def _weigh(self, partition: Partition) -> None:
        """Is a GPU that several tasks share used beyond the limit, by what they take in fact?"""
        load = 0.0
        if partition.sharing is Sharing.STACKED and len(partition.tenants) > 1:
            for tenant in partition.tenants:
                live = self._live.get(tenant.job)
                if live is not None:
                    demand = demand_of(live.job, tenant.task)
                    load += demand.gpus * demand.gpu_share * self._uses[tenant.job]
        if load > OVERLOADED + 1e-9:
            hot = self._hot.setdefault(partition.slices[0].node, set())
            self._overloads += not hot
            hot.add(partition.id)
        else:
            self._cooled(partition)

    def _cooled(self, partition: Partition) -> None:
        hot = self._hot.get(partition.slices[0].node)
        if hot is not None:
            hot.discard(partition.id)

    def _crossing_mib(self, live: LiveJob) -> float:
        graph = self._graphs.get(live.job.id)
        if graph is None or not graph.edges:
            return 0.0
        at: dict[str, str] = {}
        for pid in live.partitions:
            partition = self._placed[pid]
            for tenant in partition.tenants:
                if tenant.job != live.job.id:
                    continue
                if tenant.task:
                    at.setdefault(tenant.task.partition("#")[0], partition.slices[0].node)
                else:
                    at = dealt(graph, partition, tenant.replicas)
        return sum(e.mib for e in graph.edges if at.get(e.source) != at.get(e.target))

    # -- the result -----------------------------------------------------------------------------------------

    def played(self, decision_s: Sequence[float] = (), cpu_s: float = 0.0, peak_mib: float = 0.0) -> MlfsRun:
        """All of it."""
        unfinished = len(self._live)
        for live in self._live.values():
            self._close(live, inf)
        self._live = {}
        jcts_s, jobs = sorted(self._jcts_s), max(self._jobs, 1)
        ended = max(len(jcts_s), 1)
        return MlfsRun(
            jobs=self._jobs,
            unfinished=unfinished,
            makespan_s=self._last_s - self._first_s,
            jct_s=tuple(round(quantile(jcts_s, i / _QUANTILES) or 0.0, 3) for i in range(_QUANTILES + 1)),
            jct_mean_s=sum(jcts_s) / ended,
            soon=sum(s < SOON_S for s in jcts_s) / jobs,
            waited_s=self._waited_s / ended,
            deadlines=self._deadlines / jobs,
            urgent_deadlines=self._urgent_met / max(self._urgent, 1),
            accuracy=self._accuracy / jobs,
            accuracies=self._had_goal / jobs,
            goals=self._goals,
            sent_tib=self._mib / _MIB_PER_TIB,
            moves=self._moves,
            overloads=self._overloads,
            stopped=self._stopped,
            decisions=len(decision_s),
            decision_ms=1e3 * sum(decision_s) / max(len(decision_s), 1),
            cpu_s=cpu_s,
            peak_mib=peak_mib,
        )


def dealt(graph: TaskGraph, partition: Partition, replicas: Sequence[int]) -> dict[str, str]:
    """Task → server of a job in one piece: its parts in their order, what adds them up beside the last of them."""
    nodes = [part.node for part, n in zip(partition.slices, replicas, strict=True) for _ in range(n)]
    workers = [t.id for t in graph.tasks if t.id not in ADDING_UP]
    at = dict(zip(workers, nodes, strict=True))
    return at | {t.id: nodes[-1] for t in graph.tasks if t.id in ADDING_UP}
