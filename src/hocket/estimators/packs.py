"""How much models in a pack slow each other down, from measured steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hocket.model.curve import Curve, Point


def slowdown(seen: Iterable[tuple[float, float]]) -> Curve | None:
    """Number of other models → how many times as long a step takes, on average; None without measurements.

    `seen` has, for each stage of training, the mean number of other models and the step's time relative to that alone.
    """
    by_others: dict[int, list[float]] = defaultdict(list)
    for others, times in seen:
        if round(others) > 0 and times > 0:
            by_others[round(others)].append(times)
    if not by_others:
        return None
    points = (Point(float(n), sum(found) / len(found), 0.0, len(found)) for n, found in sorted(by_others.items()))
    return Curve((Point(0.0, 1.0), *points))
