"""The result of one run of Harmony's evaluation: small, but enough for its tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from hocket.control.ports import Cycle
from hocket.estimators.phases import observe
from hocket.executors.simulated.phases import foresee
from hocket.executors.simulated.speed import Companion, play
from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.event import JobMoved, JobResized, JobStarted, PhasesObserved
from hocket.model.partition import Holding, Partition, Sharing
from hocket.model.phases import predict, profile_of
from hocket.model.resources import Demand
from hocket.reports.account import Account, Span
from hocket.workloads.truth import Truth, Workload


class HarmonyMoment(Struct, frozen=True, array_like=True):
    """From this moment on, in fact."""

    at_s: float
    cpu: float  # shares of all machines' time
    net: float
    jobs: int
    groups: int


class HarmonyRun(Struct, frozen=True):
    """One workload under one approach, or one measurement."""

    makespan_s: float = 0.0
    jcts_s: tuple[float, ...] = ()
    unfinished: int = 0
    failures: int = 0
    moved_share: float = 0.0  # of the machines' time, that jobs' parts of them stood still for migrations …
    moved_at_most: float = 0.0  # … and if all their companions stood still too
    moments: tuple[HarmonyMoment, ...] = ()
    errors: tuple[float, ...] = ()  # foreseen over played round, less 1, of each group formed …
    plain_errors: tuple[float, ...] = ()  # … and as equation 1 has it
    groups: tuple[tuple[int, int], ...] = ()  # machines and jobs of each group formed
    decisions_ms: tuple[float, ...] = ()
    cpu_s: float = 0.0
    numbers: dict[str, float] = {}  # of a measurement

    @property
    def jct_mean_s(self) -> float:
        """Mean job completion time."""
        return sum(self.jcts_s) / len(self.jcts_s) if self.jcts_s else 0.0

    def mean(self, of: str) -> float:
        """Over the makespan."""
        total = 0.0
        for now, then in zip(self.moments, self.moments[1:], strict=False):
            total += getattr(now, of) * (then.at_s - now.at_s)
        return total / self.makespan_s if self.makespan_s else 0.0


def use_over_time(account: Account, workload: Workload, noise: float, seed: int) -> tuple[HarmonyMoment, ...]:
    """What the machines did, from one change to the next: the phases of all that held something, played."""
    truths = {s.job.id: s.truth for s in workload.submissions}
    machines = len(workload.nodes)
    edges = sorted({account.began_s, *(s.since_s for s in account.spans), *(s.until_s for s in account.spans)})
    begins, ends = _by(account.spans, "since_s"), _by(account.spans, "until_s")
    running: dict[tuple[int, str], Span] = {}
    found = []
    for at_s in edges:
        for span in ends.get(at_s, ()):
            if running.get((span.job, span.task)) is span:
                del running[span.job, span.task]
        for span in begins.get(at_s, ()):
            running[span.job, span.task] = span
        groups: dict[str, list[Span]] = {}
        for span in running.values():
            groups.setdefault(span.partition.id, []).append(span)
        cpu = net = 0.0
        for spans in groups.values():
            on, c, n = _use(spans, account, truths, noise, seed)
            cpu, net = cpu + on * c, net + on * n
        found.append(HarmonyMoment(at_s, cpu / machines, net / machines, len(running), len(groups)))
    return tuple(found)


def _by(spans: Iterable[Span], field: str) -> Mapping[float, list[Span]]:
    found: dict[float, list[Span]] = {}
    for span in spans:
        found.setdefault(getattr(span, field), []).append(span)
    return found


def _use(
    spans: list[Span], account: Account, truths: Mapping[str, Truth], noise: float, seed: int
) -> tuple[int, float, float]:
    """Machines, and shares of CPU and network."""
    here = [_companion(account.jobs[s.job].job.id, s.partition, truths) for s in spans]
    partition = spans[0].partition
    played = play(here, partition.sharing, noise, seed)
    return len(partition.slices), played.cpu, played.net


def _companion(job: str, partition: Partition, truths: Mapping[str, Truth]) -> Companion:
    tenant = next(t for t in partition.tenants if t.job == job)
    holding = Holding(partition.id, partition.slices, tenant.replicas)
    return Companion(Demand(), truths[job], holding, "")


def standing_still(cycles: Iterable[Cycle], workload: Workload) -> tuple[float, float]:
    """Machine time that migrations take: of each job its part of the group it goes to, and that whole group."""
    costs = {s.job.id: s.truth.costs.restart_s(warm=False) for s in workload.submissions}
    where: dict[str, tuple[tuple[str, ...], int]] = {}  # machines, and jobs of their group
    held: dict[str, tuple[str, ...]] = {}
    part_s = whole_s = 0.0
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, JobStarted | JobMoved | JobResized) and event.job in where:
                machines, jobs = where[event.job]
                resumes = isinstance(event, JobStarted)
                if event.job in held and (resumes or held[event.job] != machines):  # The first start is no migration.
                    whole_s += costs[event.job] * len(machines)
                    part_s += costs[event.job] * len(machines) / jobs
                held[event.job] = machines
        for partition in cycle.plan.put if cycle.plan is not None else ():
            for tenant in partition.tenants:
                nodes = tuple(s.node for s, n in zip(partition.slices, tenant.replicas, strict=True) if n)
                where[tenant.job] = nodes, len(partition.tenants)
    return part_s, whole_s


class Formed(Struct, frozen=True):
    """A group that a plan formed of profiled jobs."""

    machines: int
    jobs: int
    error: float  # what its profiles foresee, over what the phases really do, less 1
    plain_error: float  # the same of equation 1


def groups_formed(cycles: Iterable[Cycle], workload: Workload, noise: float, seed: int) -> list[Formed]:
    """All groups of all decisions, and how well their rounds were predicted."""
    truths = {s.job.id: s.truth for s in workload.submissions}
    known: dict[str, Beliefs] = {}
    found = []
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, PhasesObserved):
                known[event.job] = observe(known.get(event.job, NO_BELIEFS), event)
        for partition in cycle.plan.put if cycle.plan is not None else ():
            jobs, m = [t.job for t in partition.tenants], len(partition.slices)
            profiles = [p for j in jobs if j in known and (p := profile_of(known[j])) is not None]
            if partition.sharing is not Sharing.INTERLEAVED or len(profiles) < len(jobs):
                continue
            round_s = play([_companion(j, partition, truths) for j in jobs], partition.sharing, noise, seed).round_s
            error, plain_error = (
                foresee(profiles, m).round_s / round_s - 1,
                predict(profiles, m).iteration_s.mean / round_s - 1,
            )
            found.append(Formed(m, len(jobs), error, plain_error))
    return found
