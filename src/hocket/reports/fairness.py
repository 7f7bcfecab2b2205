"""The difference between the shares that jobs had and their fair shares.

Dorm's fairness loss at one time is Σ|s_i − ŝ_i| over the live jobs. s_i is the job's dominant share: the largest of
its shares of the cluster's resources, as it holds them. ŝ_i is the dominant share that weighted dominant resource
fairness gives it (with one resource: weighted max-min): all shares grow in proportion to the jobs' weights, until a
job has its largest size, or a resource that it needs is used up. Shares are fractions here, so even a perfect
schedule of whole GPUs has some loss. The loss of a run is the mean over evenly spaced moments of its makespan.

Jobs of equal weight, demand and largest size have the same ŝ, so the cost depends on the number of such sorts, not
on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, inf
from typing import TypeVar

from msgspec import Struct

from hocket.model.job import Job
from hocket.model.resources import Demand, Node
from hocket.reports.account import Account, Span

MOMENTS = 300
_EPSILON = 1e-12

K = TypeVar("K")
Vector = tuple[float, float, float, float]  # GPUs, cores, memory, network


class Sort(Struct, frozen=True, gc=False):
    """Jobs that are alike: the request of one at its largest size, and its weight."""

    demand: Vector
    weight: float


def fairness_loss(account: Account, moments: int = MOMENTS) -> float:
    """The mean of Dorm's Σ|s − ŝ| over evenly spaced moments of the makespan."""
    step_s = account.makespan_s / moments
    if step_s <= 0:
        return 0.0
    # In the middle of equal intervals: at the edges of the makespan nothing runs.
    first_s = account.began_s + step_s / 2
    sorts = _Sorts()
    live = _alive(account, sorts, first_s, step_s, moments)
    held = _holdings(account, sorts, first_s, step_s, moments)
    steps = list(account.capacity)
    loss, capacity = 0.0, (0.0, 0.0, 0.0, 0.0)
    for m in range(moments):
        while steps and steps[0][0] <= first_s + m * step_s:
            capacity = total(steps.pop(0)[1])
        loss += _loss_at(live[m], held[m], sorts.values, capacity)
    return loss / moments


class _Sorts:
    """The sorts so far. The loops below use their numbers, which are cheaper to look up."""

    def __init__(self) -> None:
        self.values: list[Sort] = []  # distinct
        self._numbers: dict[Sort, int] = {}
        self._seen: dict[tuple[Demand, int, float], int] = {}

    def of(self, job: Job) -> int:
        """The number of a job's sort."""
        key = (job.demand, job.sizes[-1], job.weight)
        number = self._seen.get(key) if job.tasks is None else None
        if number is None:
            sort = sort_of(job)
            number = self._numbers.setdefault(sort, len(self.values))
            if number == len(self.values):
                self.values.append(sort)
            if job.tasks is None:
                self._seen[key] = number
        return number


def _alive(account: Account, sorts: _Sorts, first_s: float, step_s: float, moments: int) -> list[dict[int, int]]:
    """How many jobs of each sort are live at each moment."""
    changes: list[dict[int, int]] = [{} for _ in range(moments + 1)]
    last_s, next_s = -inf, first_s  # the moments about the present job's submission
    for record in account.jobs:
        submitted_s, ended_s = record.submitted_s, record.ended_s
        while submitted_s >= next_s:
            last_s, next_s = next_s, next_s + step_s
        if ended_s is not None and ended_s < next_s and submitted_s >= last_s:
            continue  # Most jobs arrive and end between two samples.
        begin = ceil((submitted_s - first_s) / step_s)
        end = moments if ended_s is None else ceil((ended_s - first_s) / step_s)
        if begin < end:
            sort = sorts.of(record.job)
            at, past = changes[max(begin, 0)], changes[min(end, moments)]
            at[sort] = at.get(sort, 0) + 1
            past[sort] = past.get(sort, 0) - 1
    return _summed(changes[:-1])


def _holdings(
    account: Account, sorts: _Sorts, first_s: float, step_s: float, moments: int
) -> list[dict[tuple[int, Vector], int]]:
    """How many jobs of each sort hold how much at each moment; several tenants of one job count together."""
    changes: list[dict[tuple[int, Vector], int]] = [{} for _ in range(moments + 1)]
    several: list[dict[int, list[Span]]] = [{} for _ in range(moments)]  # by job, where it has tasks
    jobs = account.jobs
    last_s, next_s = -inf, first_s  # the moments about the present span's end
    for span in account.spans:
        since_s, until_s = span.since_s, span.until_s
        while until_s >= next_s:
            last_s, next_s = next_s, next_s + step_s
        if since_s >= last_s and until_s < next_s:
            continue
        begin = max(ceil((since_s - first_s) / step_s), 0)
        end = min(ceil((until_s - first_s) / step_s), moments)
        if begin >= end:
            continue
        if span.task:
            for m in range(begin, end):
                several[m].setdefault(span.job, []).append(span)
            continue
        key = (sorts.of(jobs[span.job].job), vector_of(span))
        at, past = changes[begin], changes[end]
        at[key] = at.get(key, 0) + 1
        past[key] = past.get(key, 0) - 1
    held = _summed(changes[:-1])
    for m, by_job in enumerate(several):
        for number, spans in by_job.items():
            key = (sorts.of(jobs[number].job), _sum(vector_of(s) for s in spans))
            held[m][key] = held[m].get(key, 0) + 1
    return held


def _summed(changes: Sequence[dict[K, int]]) -> list[dict[K, int]]:
    counts: dict[K, int] = {}
    moments = []
    for change in changes:
        for key, delta in change.items():
            if not (now := counts.get(key, 0) + delta):
                counts.pop(key, None)
            else:
                counts[key] = now
        moments.append(dict(counts))
    return moments


def _loss_at(
    live: dict[int, int], held: dict[tuple[int, Vector], int], sorts: Sequence[Sort], capacity: Vector
) -> float:
    if not live:
        return 0.0
    due = due_shares({sorts[n]: count for n, count in live.items()}, capacity)
    loss, waiting = 0.0, dict(live)
    for (n, amounts), count in held.items():
        share = min(_dominant(amounts, capacity), 1.0)
        loss += count * abs(share - due.get(sorts[n], 0.0))
        waiting[n] = waiting.get(n, 0) - count
    return loss + sum(max(count, 0) * due.get(sorts[n], 0.0) for n, count in waiting.items())


def due_shares(counts: dict[Sort, int], capacity: Vector) -> dict[Sort, float]:
    """The dominant share that weighted dominant resource fairness gives one job of each sort.

    Progressive filling: at level λ a job of weight w has the share w·λ, up to its largest size.
    """
    due: dict[Sort, float] = {}
    # (level at which it has all it can use, sort, its use of each resource per unit of level)
    growing: list[tuple[float, Sort, tuple[float, ...]]] = []
    for sort, count in counts.items():
        most = _dominant(sort.demand, capacity)
        if most == inf or most <= 0:
            due[sort] = 0.0  # It requests nothing, or something that the cluster does not have now.
            continue
        rate = tuple(
            count * sort.weight * (d / c) / most if c else 0.0 for d, c in zip(sort.demand, capacity, strict=True)
        )
        growing.append((most / sort.weight, sort, rate))
    growing.sort(key=lambda g: g[0])
    level, left = 0.0, [1.0, 1.0, 1.0, 1.0]
    rates = [sum(g[2][r] for g in growing) for r in range(4)]
    frozen: set[Sort] = set()
    for full, sort, rate in growing:
        while sort not in frozen:
            spent = min((left[r] / rates[r] for r in range(4) if rates[r] > _EPSILON), default=inf)
            grow = min(full - level, spent)
            level += grow
            left = [left[r] - rates[r] * grow for r in range(4)]
            if level >= full - _EPSILON or spent == inf:
                frozen.add(sort)
                due[sort] = sort.weight * full
                rates = [rates[r] - rate[r] for r in range(4)]
                continue
            empty = [r for r in range(4) if rates[r] > _EPSILON and left[r] <= _EPSILON]
            stopped = [o for _full, o, needs in growing if o not in frozen and any(needs[r] > 0 for r in empty)]
            for other in stopped or [sort]:
                frozen.add(other)
                due[other] = other.weight * level
            # Summed again: a rounding error in a rate must not look like a job that still grows.
            rates = [sum(g[2][r] for g in growing if g[1] not in frozen) for r in range(4)]
    return due


def sort_of(job: Job) -> Sort:
    """What decides a job's due share."""
    if job.tasks is not None:
        return Sort(_sum(_vector(t.demand, 1) for t in job.tasks.tasks), job.weight)
    return Sort(_vector(job.demand, job.sizes[-1]), job.weight)


def vector_of(span: Span) -> Vector:
    """What a tenant holds: its part of its partition."""
    share, slices = span.share, span.partition.slices
    if len(slices) == 1:
        (part,) = slices
        return share * len(part.gpus), share * part.cores, share * part.mem_mib, share * part.net_mbps
    return (
        share * sum(len(s.gpus) for s in slices),
        share * sum(s.cores for s in slices),
        share * sum(s.mem_mib for s in slices),
        share * sum(s.net_mbps for s in slices),
    )


def total(nodes: Iterable[Node]) -> Vector:
    """What these nodes have together."""
    return _sum((float(n.gpus), n.cores, n.mem_mib, n.net_mbps) for n in nodes)


def _vector(demand: Demand, replicas: int) -> Vector:
    return (
        demand.gpus * demand.gpu_share * replicas,
        demand.cores * replicas,
        demand.mem_mib * replicas,
        demand.net_mbps * replicas,
    )


def _sum(vectors: Iterable[Vector]) -> Vector:
    gpus = cores = mem_mib = net_mbps = 0.0
    for v in vectors:
        gpus += v[0]
        cores += v[1]
        mem_mib += v[2]
        net_mbps += v[3]
    return gpus, cores, mem_mib, net_mbps


def _dominant(amounts: Vector, capacity: Vector) -> float:
    """The largest share of a resource; infinite for one that the cluster does not have."""
    share = 0.0
    for amount, whole in zip(amounts, capacity, strict=True):
        if amount > 0:
            share = max(share, amount / whole if whole else inf)
    return share
