"""How many jobs of Rotary's workloads any schedule could attain at most, if all were known beforehand.

An upper bound for one machine, from the true needs of the jobs. Time is cut at each arrival and deadline; in each piece
a query gets core-seconds, and training seconds of a GPU with its cores. A query of c core-seconds in a piece of length
L does at most L · S(c / L) work, where S is the concave hull of its speed by cores: cores that are handed out by
fractions are whole cores that are handed on within the piece. So a schedule without starts and pauses, that is decided
anew at any moment, attains as many as the integer program below says; a real one can attain no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import floor, inf

from msgspec import Struct

from hocket.model.criterion import Convergence, Duration, Epochs, Goal, RunTime, limit_of
from hocket.model.job import Kind
from hocket.workloads.truth import Submission, Workload

_TIME_LIMIT_S = 60.0


class AttainmentNeed(Struct, frozen=True):
    """What a job takes to attain, and when."""

    kind: str  # its class or criterion
    from_s: float
    until_s: float
    work_s: float  # at its smallest size; infinite if it never attains
    gpus: int
    cores: float  # for each replica
    speeds: tuple[float, ...]  # by replicas, from 1


class AttainmentBound(Struct, frozen=True):
    """At most so many attain, and as many in the best schedule that was found."""

    most: int
    found: int
    possible: int  # jobs that attain if they have the machine to themselves


def most_attained(workload: Workload, horizon_s: float = inf) -> AttainmentBound:
    """The bound for a workload on its machine; `horizon_s` is the deadline of jobs that have none in time."""
    needs = [need_of(submission, horizon_s) for submission in workload.submissions]
    node = workload.nodes[0]
    able = [n for n in needs if n.work_s <= (n.until_s - n.from_s) * n.speeds[-1]]
    timeless = [n for n in able if n.until_s == inf]  # They attain whatever the others do.
    most, found = _solved([n for n in able if n.until_s < inf], float(node.gpus), node.cores)
    return AttainmentBound(most + len(timeless), found + len(timeless), len(able))


def need_of(submission: Submission, horizon_s: float = inf) -> AttainmentNeed:
    """What it takes for its criterion to hold, by its true behaviour."""
    job, truth = submission.job, submission.truth
    limit = limit_of(job.criterion) if job.criterion is not None else None
    in_time = isinstance(limit, Duration) and not isinstance(job.criterion, RunTime)
    until_s = submission.at_s + limit.time_s if in_time and isinstance(limit, Duration) else horizon_s
    speeds = tuple(truth.speed.at(s).mean if truth.speed is not None else float(s) for s in job.sizes)
    work_s = _epochs_needed(submission) * truth.run_s / truth.epochs
    return AttainmentNeed(
        job.id.partition("-")[0], submission.at_s, until_s, work_s, job.demand.gpus, job.demand.cores, speeds
    )  # fmt: skip


def _epochs_needed(submission: Submission) -> float:
    """Epochs until the criterion holds; a query's may be fractions. Infinite if it never does."""
    job, truth = submission.job, submission.truth
    criterion, quality = job.criterion, truth.quality
    assert criterion is not None
    assert quality is not None
    limit = limit_of(criterion)
    most = limit.count if isinstance(limit, Epochs) else truth.epochs
    if isinstance(criterion, RunTime):
        return float(most)
    if job.kind is Kind.QUERY:
        assert isinstance(criterion, Goal)
        found = quality.first_at_least(criterion.target)
        return inf if found is None else found
    values = [quality.at(float(k)).mean for k in range(1, most + 1)]
    if isinstance(criterion, Convergence):
        return next((float(k) for k, (a, b) in enumerate(pairwise(values), 2) if criterion.met_by(a, b)), inf)
    assert isinstance(criterion, Goal)
    return next((float(k) for k, v in enumerate(values, 1) if criterion.met_by(v)), inf)


def _solved(needs: Sequence[AttainmentNeed], gpus: float, cores: float) -> tuple[int, int]:
    """The bound of the integer program, and the best solution found."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

    if not needs:
        return 0, 0
    cuts = sorted({t for n in needs for t in (n.from_s, n.until_s)})
    pieces = list(pairwise(cuts))
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    tops = [1.0] * len(needs)  # of variables: whether each job attains, then seconds of each further core of each job

    def row(entries: Sequence[tuple[int, float]], low: float, high: float) -> None:
        rows.extend([len(lows)] * len(entries))
        columns.extend(c for c, _v in entries)
        values.extend(v for _c, v in entries)
        lows.append(low)
        highs.append(high)

    used_cores: list[list[tuple[int, float]]] = [[] for _ in pieces]
    used_gpus: list[list[tuple[int, float]]] = [[] for _ in pieces]
    for j, need in enumerate(needs):
        done = [(j, -need.work_s)]
        gains = [b - a for a, b in pairwise((0.0, *need.speeds))]  # They fall, so earlier ones are filled first.
        for i, (begin, end) in enumerate(pieces):
            if begin < need.from_s or end > need.until_s:
                continue
            for gain in gains:
                column = len(tops)
                tops.append(end - begin)
                done.append((column, gain))
                if need.cores:
                    used_cores[i].append((column, need.cores))
                if need.gpus:
                    used_gpus[i].append((column, float(need.gpus)))
        row(done, 0.0, inf)
    for i, (begin, end) in enumerate(pieces):
        if used_cores[i] and cores:
            row(used_cores[i], -inf, cores * (end - begin))
        if used_gpus[i] and gpus:
            row(used_gpus[i], -inf, gpus * (end - begin))
    count = len(tops)
    cost = np.zeros(count)
    cost[: len(needs)] = -1.0
    whole = np.zeros(count)
    whole[: len(needs)] = 1.0
    matrix = csr_array((values, (rows, columns)), shape=(len(lows), count))
    solved = milp(
        cost, integrality=whole, bounds=Bounds(np.zeros(count), np.array(tops)),
        constraints=LinearConstraint(matrix, np.array(lows), np.array(highs)),
        options={"time_limit": _TIME_LIMIT_S, "mip_rel_gap": 0.0},
    )  # fmt: skip
    found = 0 if solved.x is None else round(float(solved.x[: len(needs)].sum()))
    bound = getattr(solved, "mip_dual_bound", None)
    return (len(needs) if bound is None else floor(-bound + 1e-6)), found
