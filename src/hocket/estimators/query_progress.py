"""The accuracy of a query by its run time, as Rotary-AQP estimates it: a weighted linear regression.

Each of the query's own results weighs one, and all results of similar past queries together weigh one as well. So the
first estimate rests on the past alone, the second on both alike, and later ones mostly on the query itself. A straight
line cannot level off: `query_error.py` is the estimate that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, sqrt

from hocket.model.curve import Curve, Point

Results = Sequence[tuple[float, float]]  # (seconds of work, accuracy)


def progress(own: Results, past: Sequence[tuple[float, Results]], until_s: float) -> Curve | None:
    """Seconds of work → accuracy, a line from 0 to `until_s`; None without any result.

    `past` has the results of similar queries, each with its similarity.
    """
    rows = [(t, a, 1.0) for t, a in own if isfinite(a) and 0 <= t < inf]
    old = [(t, a, alike) for alike, results in past for t, a in results if isfinite(a) and 0 <= t < inf]
    if whole := sum(alike for _t, _a, alike in old):
        rows += [(t, a, alike / whole) for t, a, alike in old]
    weight = sum(w for _t, _a, w in rows)
    if not weight or not until_s > 0:
        return None
    t_mean = sum(w * t for t, _a, w in rows) / weight
    a_mean = sum(w * a for _t, a, w in rows) / weight
    tt = sum(w * (t - t_mean) ** 2 for t, _a, w in rows)
    slope = sum(w * (t - t_mean) * (a - a_mean) for t, a, w in rows) / tt if tt > 1e-12 else 0.0
    slope = max(0.0, slope)  # A result that is worse than the one before is noise.
    squares = sum(w * (a - a_mean - slope * (t - t_mean)) ** 2 for t, a, w in rows)
    spread = sqrt(squares / weight * len(rows) / max(len(rows) - 2, 1))
    return Curve(tuple(Point(t, a_mean + slope * (t - t_mean), spread, 0) for t in (0.0, until_s)))
