"""What no scheduler can beat on Reshape's workloads: GPUs of two kinds, and jobs that gain less by each GPU more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf

from hocket.reproductions.bounds import JobNeeds, least_makespan_s, least_mean_jct_s
from hocket.workloads.truth import Submission, Workload


def least_s(workload: Workload) -> tuple[float, float]:
    """Makespan and mean JCT, at the least."""
    gpus = {node.gpu_kind: node.gpus for node in workload.nodes}
    rates = [_rates(s, gpus) for s in workload.submissions]
    # How much of all GPU time a job needs, where a GPU of each kind counts for what it does on average: at the size and
    # on the kind that need least.
    worth = {kind: sum(max(r[kind][n] / n for n in r[kind]) for r in rates) / len(rates) for kind in gpus}
    whole = sum(n * worth[kind] for kind, n in gpus.items())
    works = []
    for s, r in zip(workload.submissions, rates, strict=True):
        of_each_second = min(worth[kind] * n / r[kind][n] for kind in gpus for n in r[kind])
        alone_s = _start_s(s) + s.truth.run_s / max(rate for by_size in r.values() for rate in by_size.values())
        works.append(JobNeeds(s.at_s, (s.truth.run_s * of_each_second / whole,), alone_s))
    return max(least_makespan_s(works), _of_the_longest(workload, rates, gpus)), least_mean_jct_s(works)


Rates = dict[str, dict[int, float]]  # kind → number of GPUs → speed


def _rates(s: Submission, kinds: Iterable[str]) -> Rates:
    truth = s.truth
    assert truth.speed is not None
    return {kind: {n: truth.speed.at(n).mean * truth.kinds.get(kind, 1.0) for n in s.job.sizes} for kind in kinds}


def _start_s(s: Submission) -> float:
    return s.truth.costs.prepare_s + s.truth.costs.start_s


def _of_the_longest(workload: Workload, rates: Sequence[Rates], gpus: Mapping[str, int]) -> float:
    """The makespan of the n longest jobs that come from some moment on, if all GPUs serve them alone, for every n."""
    best: Rates = {kind: {n: max(r[kind][n] for r in rates) for n in rates[0][kind]} for kind in gpus}
    together = _rates_together(len(rates), best, gpus)
    latest_s = 0.0
    for first, s in enumerate(workload.submissions):
        longest_s = sorted((later.truth.run_s for later in workload.submissions[first:]), reverse=True)
        for n, work_s in enumerate(accumulate(longest_s), start=1):
            latest_s = max(latest_s, s.at_s + _start_s(s) + work_s / together[n])
    return latest_s


def _rates_together(jobs: int, best: Rates, gpus: Mapping[str, int]) -> list[float]:
    """The most that 0, 1, 2 and more jobs do in a second, each on GPUs of one kind.

    Those on one kind share it equally, for a GPU more brings less and less.
    """
    totals = [0.0, *[-inf] * jobs]  # by the number of jobs on the kinds so far
    for kind, many in gpus.items():
        alike = [0.0, *(n * _concave(best[kind], many / n) for n in range(1, jobs + 1))]
        totals = [max(totals[n - k] + alike[k] for k in range(n + 1)) for n in range(jobs + 1)]
    return totals


def _concave(by_size: Mapping[int, float], size: float) -> float:
    """The speed at a size, or what two of those that there are come to if jobs alternate between them."""
    points = [(0.0, 0.0), *((float(n), speed) for n, speed in by_size.items())]
    lines = [
        ya + (yb - ya) * (size - xa) / (xb - xa)
        for xa, ya in points
        for xb, yb in points
        if xa <= size <= xb and xa < xb
    ]
    return max(lines, default=max(by_size.values()))
