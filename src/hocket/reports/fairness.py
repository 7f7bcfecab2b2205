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

from collections.abc import Sequence
from math import ceil, inf
from typing import TypeVar

from msgspec import Struct

from hocket.model.job import Job
from hocket.model.resources import Demand, Vector, total
from hocket.policies.kit.dominant_shares import Wanted, shares_by_kind
from hocket.reports.account import Account, Span

MOMENTS = 300

K = TypeVar("K")


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
            capacity = total(node.vector for node in steps.pop(0)[1])
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
            key = (sorts.of(jobs[number].job), total(map(vector_of, spans)))
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

    At level λ a job of weight w has the share w·λ, up to its largest size.
    """
    there = [r for r, amount in enumerate(capacity) if amount]
    kinds: dict[Wanted, int] = {}  # sorts that are alike in what there is count together
    for sort, count in counts.items():
        if 0 < _dominant(sort.demand, capacity) < inf:
            kind = _wanted(sort, there)
            kinds[kind] = kinds.get(kind, 0) + count
    due = shares_by_kind([capacity[r] for r in there], kinds)
    # One that requests nothing, or something that the cluster does not have now, is due nothing.
    return {sort: due.get(_wanted(sort, there), 0.0) for sort in counts}


def _wanted(sort: Sort, there: Sequence[int]) -> Wanted:
    """A job as one container of its largest size, in the resources that there are."""
    return tuple(sort.demand[r] for r in there), sort.weight, 1


def sort_of(job: Job) -> Sort:
    """What decides a job's due share."""
    if job.tasks is not None:
        return Sort(total(t.demand.load for t in job.tasks.tasks), job.weight)
    return Sort(job.demand.times(job.sizes[-1]).load, job.weight)


def vector_of(span: Span) -> Vector:
    """What a tenant holds: its part of its partition."""
    share, slices = span.share, span.partition.slices
    gpus, cores, mem_mib, net_mbps = slices[0].vector if len(slices) == 1 else total(s.vector for s in slices)
    return share * gpus, share * cores, share * mem_mib, share * net_mbps


def _dominant(amounts: Vector, capacity: Vector) -> float:
    """The largest share of a resource; infinite for one that the cluster does not have."""
    share = 0.0
    for amount, whole in zip(amounts, capacity, strict=True):
        if amount > 0:
            share = max(share, amount / whole if whole else inf)
    return share
