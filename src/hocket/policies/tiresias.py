"""Tiresias: least attained service in levels, and by the Gittins index where run times are known as a distribution."""

from __future__ import annotations

from functools import lru_cache
from math import erf, inf, log, log1p, sqrt
from typing import Annotated, Literal

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies import las
from hocket.policies.registry import policy

_DIGITS = 3  # of a belief that count: jobs of about the same distribution share one index


class Tiresias(las.Las, frozen=True):
    """The knobs of `las`, and one more."""

    variant: Annotated[
        Literal["gittins", "las"],
        Meta(description="within a level: by the Gittins index of believed run times, or by first start"),
    ] = "gittins"


def rank(view: JobView, now_s: float, params: Tiresias) -> tuple[float, ...]:
    """By priority and level; in a level by the Gittins index, the largest first, then by first start as in `las`."""
    priority, level, start = found = las.rank(view, now_s, params)
    return found if params.variant == "las" else (priority, level, -_index(view, level, params), start)


def _index(view: JobView, level: int, params: Tiresias) -> float:
    """The job's Gittins index when it came to its level, for service up to the next; 0 when nothing is believed.

    It is constant within a level, so running jobs need no re-sorting.
    """
    run_s, size = view.beliefs.run_s, view.beliefs.reference_size
    gpus = size * view.job.demand.gpus
    if run_s is None or run_s.mean <= 0 or not gpus:
        return 0.0
    bounds = (0.0, *params.levels_gpu_s, inf)
    return gittins(_few(run_s.mean * gpus), _few(run_s.sd * gpus), bounds[level], bounds[level + 1])


def _few(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


@lru_cache(maxsize=65536)
def gittins(mean: float, sd: float, attained: float, until: float) -> float:
    """P(it ends before `until` | it has not ended at `attained`) over the service that is then expected to be spent.

    Service is lognormal with this mean and deviation. One that outlives all belief is taken to need as much again.
    """
    if sd <= 0.0:
        left = mean - attained if mean > attained else max(attained, 1.0)
        return 1.0 / left if left <= until - attained else 0.0
    variance = log1p((sd / mean) ** 2)
    centre, width = log(mean) - variance / 2.0, sqrt(variance)
    alive = _beyond(attained, centre, width)
    if alive < 1e-12:
        return 1.0 / max(attained, 1.0)
    ends = 1.0 - _beyond(until, centre, width) / alive
    # E[min(S, until) - attained | S > attained], by the lognormal's partial expectations.
    below = _partial(attained, centre, width, mean) - _partial(until, centre, width, mean)
    above = until * _beyond(until, centre, width) if until < inf else 0.0
    spent = (below + above) / alive - attained
    return ends / spent if spent > 0.0 else 0.0


def _beyond(x: float, centre: float, width: float) -> float:
    """P(S > x)."""
    if x <= 0.0 or x == inf:
        return 0.0 if x == inf else 1.0
    return 0.5 * (1.0 - erf((log(x) - centre) / (width * sqrt(2.0))))


def _partial(x: float, centre: float, width: float, mean: float) -> float:
    """E[S; S > x]."""
    if x <= 0.0 or x == inf:
        return 0.0 if x == inf else mean
    return mean * 0.5 * (1.0 - erf((log(x) - centre - width * width) / (width * sqrt(2.0))))


@policy(
    "tiresias",
    params=Tiresias,
    order=rank,
    shifts=las.next_demotion_s,
    paper="Tiresias, NSDI'19",
    reads_usage=False,
    reads=("priority",),
)
def decide(snapshot: Snapshot, params: Tiresias) -> Plan:
    """Least attained service in levels; in a level the likeliest to end soon, by the Gittins index, or the first begun.

    Jobs on a higher level take the place of lower ones, as `las` does it; within a level no job is swapped.
    """
    return las.decide(snapshot, params)
