"""TTR, Rotary's training-time recorder: how long a unit of work takes, an epoch of training or all data of a query.

The first report is dropped, since the first step warms up the device, reads from the disk or plans the query. Before
there are two reports, the times of similar past jobs stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, inf, log, sqrt

from hocket.model.curve import Curve, Estimate, Point
from hocket.model.past_job import PastJob

_MOST = 16  # reports that are kept, the latest
_SPREAD = 1.0  # standard deviation of the logarithm of times of past jobs that are not alike at all


def noted(times: Curve | None, units: float, done_s: float) -> Curve | None:
    """Units done → seconds of work, with one more report; one that goes backwards changes nothing."""
    points = times.points if times is not None else ()
    if (
        not 0 < units < inf
        or not 0 <= done_s < inf
        or (points and (units <= points[-1].x or done_s <= points[-1].mean))
    ):
        return times
    kept = (*points, Point(units, done_s, 0.0, 1))
    return Curve(kept if len(kept) <= _MOST else (kept[0], *kept[-_MOST + 1 :]))


def unit_s(times: Curve | None) -> Estimate | None:
    """Seconds of work of one unit, without the first report; None before two reports."""
    points = times.points if times is not None else ()
    if len(points) < 2:
        return None
    mean = (points[-1].mean - points[0].mean) / (points[-1].x - points[0].x)
    each = [(b.mean - a.mean) / (b.x - a.x) for a, b in pairwise(points)]
    if len(each) < 2:
        return Estimate(mean, 0.1 * mean)  # One time says nothing about how much times differ.
    squares = sum((one - mean) ** 2 for one in each)
    return Estimate(mean, sqrt(squares / (len(each) - 1) / len(each)))


def from_past(similar: Sequence[tuple[float, PastJob]]) -> Estimate | None:
    """Seconds of work of one unit of a job that has not reported yet, by how long those of similar jobs took."""
    known = [(alike, log(p.unit_s)) for alike, p in similar if p.unit_s > 0]
    weight = sum(alike for alike, _t in known)
    if not weight:
        return None
    mean = sum(alike * t for alike, t in known) / weight
    spread = sum(alike * (t - mean) ** 2 for alike, t in known) / weight
    spread += (_SPREAD * (1.0 - weight / len(known))) ** 2  # Jobs that are less alike say less.
    return Estimate(exp(mean), exp(mean) * sqrt(exp(min(spread, 4.0)) - 1.0))
