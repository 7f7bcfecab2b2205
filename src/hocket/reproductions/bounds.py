"""What no scheduler can beat: lower bounds on makespan and mean job completion time.

Both relax the problem. All machines together are taken for one that serves any job at full speed, and each resource is
looked at by itself. What no schedule of the relaxed problem reaches, none of the real one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from msgspec import Struct


class JobNeeds(Struct, frozen=True):
    """What has to be done for one job, however it is scheduled."""

    submitted_s: float
    needs_s: tuple[float, ...]  # of each resource: for how long it keeps the whole cluster's busy, at least
    alone_s: float  # from its submission to its end, if it has the whole cluster for itself


def least_makespan_s(works: Sequence[JobNeeds]) -> float:
    """When the last job ends, at the earliest."""
    return max((ends[-1] for ends in _bounds(works)), default=0.0)


def least_mean_jct_s(works: Sequence[JobNeeds]) -> float:
    """Mean time from submission to end, at the least."""
    if not works:
        return 0.0
    # Each bound says when at the earliest one job has ended, two jobs have, and so on: all of them hold at once.
    ends: list[float] = [max(several) for several in zip(*_bounds(works), strict=True)]
    return (sum(ends) - sum(w.submitted_s for w in works)) / len(works)


def _bounds(works: Sequence[JobNeeds]) -> list[list[float]]:
    """By resource, and by what jobs take alone: the k-th of all ends is not before the k-th of these."""
    if not works:
        return []
    resources = range(len(works[0].needs_s))
    alone = sorted(w.submitted_s + w.alone_s for w in works)
    return [alone, *(shortest_first([(w.submitted_s, w.needs_s[r]) for w in works]) for r in resources)]


def shortest_first(jobs: Sequence[tuple[float, float]]) -> list[float]:
    """When (submission, length) end, in order, on one machine that always serves the one with the least left.

    No other order has more jobs ended at any moment.
    """
    coming = sorted(jobs, reverse=True)
    left: list[float] = []
    ends: list[float] = []
    now_s = 0.0
    while coming or left:
        if not left:
            now_s = max(now_s, coming[-1][0])
        while coming and coming[-1][0] <= now_s:
            heappush(left, coming.pop()[1])
        shortest_s = heappop(left)
        until_s = coming[-1][0] if coming else float("inf")
        if now_s + shortest_s <= until_s:
            now_s += shortest_s
            ends.append(now_s)
        else:
            heappush(left, shortest_s - (until_s - now_s))
            now_s = until_s
    return ends
