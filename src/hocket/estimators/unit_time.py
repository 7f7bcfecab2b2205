"""TTR, Rotary's training-time recorder: how long a unit of work takes, an epoch of training or all data of a query.

The first report is dropped, since the first step warms up the device, reads from the disk or plans the query. Before
there are two reports, the times of similar past jobs stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, inf, log, sqrt

from hocket.model.curve import QUERY_TIME_EXPONENT as EXPONENT
from hocket.model.curve import Curve, Estimate, Point
from hocket.model.past_job import PastJob

_MOST = 16  # reports that are kept, the latest
_EXPONENT_SD = 0.3  # how far the growth of a query's time may be from what it was
_SAME_SD = 0.15  # standard deviation of the logarithm of the times of the same query
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


def whole_s(times: Curve | None, past: Estimate | None = None) -> Estimate | None:
    """Seconds of work of all data of a query, from its reports and from past queries; None without either.

    Batches cost time beside what their rows take, and often each is as large as all before it: so the time grows less
    than the share f of the data, about as f^b. b is that of the latest reports. The farther it is to the end, the less
    is certain.
    """
    points = times.points if times is not None else ()
    if not points:
        return past
    share, at_s = points[-1].x, points[-1].mean
    if share >= 1:
        return Estimate(at_s)
    exponent = EXPONENT
    if earlier := [p for p in points if p.x <= 0.75 * share and p.mean > 0]:
        first = earlier[-1]
        exponent = log(at_s / first.mean) / log(share / first.x)
    exponent = min(1.2, max(0.2, exponent))
    own, own_sd = log(at_s) - exponent * log(share), max(0.02, -_EXPONENT_SD * log(share))
    if past is None or past.mean <= 0:
        return Estimate(exp(own), exp(own) * own_sd)
    old, old_sd = log(past.mean), max(_SAME_SD, past.sd / past.mean)
    weigh, weigh_old = own_sd**-2, old_sd**-2
    mean = (weigh * own + weigh_old * old) / (weigh + weigh_old)
    found = max(exp(mean), at_s)  # So much it has taken already.
    return Estimate(found, found * (weigh + weigh_old) ** -0.5)


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
