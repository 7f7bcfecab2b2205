"""What one run of Harmony's evaluation leaves behind: enough for its tables and figures, and small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from hocket.control.ports import Cycle
from hocket.executors.simulated.phases import LINK_BUSY
from hocket.executors.simulated.speed import Companion, phases_of, play
from hocket.model.event import PhasesObserved
from hocket.model.partition import Holding, Partition, Sharing
from hocket.model.phases import Profile, predict
from hocket.reports.account import Account, Span
from hocket.workloads.truth import Truth, Workload


class Moment(Struct, frozen=True, array_like=True):
    """From this moment on, in fact."""

    at_s: float
    cpu: float  # shares of all machines' time
    net: float
    jobs: int
    groups: int


class Played(Struct, frozen=True):
    """One workload under one approach, or one measurement."""

    makespan_s: float = 0.0
    jcts_s: tuple[float, ...] = ()
    unfinished: int = 0
    failures: int = 0
    moved_share: float = 0.0  # of the machines' time, spent on migrations
    moments: tuple[Moment, ...] = ()
    errors: tuple[float, ...] = ()  # predicted over played round, less 1, of each group formed
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


def use_over_time(account: Account, workload: Workload, noise: float, seed: int) -> tuple[Moment, ...]:
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
        found.append(Moment(at_s, cpu / machines, net / machines, len(running), len(groups)))
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
    if partition.sharing is Sharing.ALONE:
        comp_s, comm_s = phases_of(here[0].truth, here[0].holding, "")
        return len(partition.slices), comp_s / (comp_s + comm_s), LINK_BUSY * comm_s / (comp_s + comm_s)
    played = play(here, partition.sharing, noise, seed)
    return len(partition.slices), played.cpu, played.net


def _companion(job: str, partition: Partition, truths: Mapping[str, Truth]) -> Companion:
    tenant = next(t for t in partition.tenants if t.job == job)
    holding = Holding(partition.id, partition.slices, tenant.replicas)
    from hocket.model.resources import Demand

    return Companion(Demand(), truths[job], holding, "")


def prediction_errors(cycles: Iterable[Cycle], workload: Workload, noise: float, seed: int) -> tuple[float, ...]:
    """Of every group that a plan formed of profiled jobs: what its profiles predict, over what the phases really do."""
    truths = {s.job.id: s.truth for s in workload.submissions}
    profiles: dict[str, Profile] = {}
    errors = []
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, PhasesObserved):
                profiles[event.job] = Profile(event.comp_s * event.machines, event.comm_s)
        for partition in cycle.plan.put if cycle.plan is not None else ():
            jobs = [t.job for t in partition.tenants]
            if partition.sharing is not Sharing.INTERLEAVED or not all(j in profiles for j in jobs):
                continue
            played = play([_companion(j, partition, truths) for j in jobs], partition.sharing, noise, seed)
            predicted_s = predict([profiles[j] for j in jobs], len(partition.slices)).iteration_s.mean
            errors.append(predicted_s / played.round_s - 1)
    return tuple(errors)
