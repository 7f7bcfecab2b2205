"""The run time of a job, from ended jobs of the same owner and size, else of the same size.

Run times spread over decades, so their logarithms are averaged: the estimate is the mean of a lognormal distribution,
with its standard deviation.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any

from msgspec.structs import replace

from hocket.model.curve import Beliefs, Estimate
from hocket.model.job import Job
from hocket.model.snapshot import History
from hocket.model.versioned import OpenMap

_ENOUGH = 5  # ended jobs of a sort that are needed for an estimate
_NEW = History()
_LOG_VARIANCE_CAP = 9.0  # beyond e^±3, two outliers would give an estimate of years


def learn(history: OpenMap[Any, History], job: Job, ran_s: float) -> None:
    """Add one ended job to the history."""
    x = log(ran_s if ran_s > 1.0 else 1.0)
    size = job.sizes[-1]
    for sort in ((job.owner, size), size):
        old = history.live.get(sort) or _NEW
        history.put(sort, History(old.count + 1, old.log_sum + x, old.log_squares + x * x))


def believe(history: OpenMap[Any, History], job: Job, beliefs: Beliefs) -> Beliefs:
    """Beliefs with an estimated run time at the job's largest size, if enough jobs of its sort have ended."""
    size = job.sizes[-1]
    for sort in ((job.owner, size), size):
        seen = history.live.get(sort)
        if seen is not None and seen.count >= _ENOUGH:
            mean = seen.log_sum / seen.count
            variance = min(max(seen.log_squares / seen.count - mean * mean, 0.0), _LOG_VARIANCE_CAP)
            expected = exp(mean + variance / 2)
            spread = expected * sqrt(exp(variance) - 1)
            return replace(beliefs, run_s=Estimate(expected, spread), reference_size=job.sizes[-1])
    return beliefs
