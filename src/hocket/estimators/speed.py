"""The speed at sizes without measurements, by a fitted law: speed(n) ∝ n / (1 + c·(n − 1)).

c is the share of the work that does not scale with replicas: 0 is perfect scaling, 1 none. It is fitted to the
job's own speeds where it ran at several sizes, else to those of all jobs, else assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log, sqrt

from hocket.model.curve import Curve, Point

ASSUMED_LOSS = 0.05  # if no job ever ran at two sizes
_STEPS = 200


def law(size: float, loss: float) -> float:
    """Speed relative to size 1."""
    return size / (1 + loss * (size - 1))


def fit_loss(runs: Iterable[Mapping[int, float]]) -> float | None:
    """The loss that fits the speeds of all jobs by size best; None if no job ran at two sizes."""
    ratios = []
    for speeds in runs:
        sizes = sorted(n for n, v in speeds.items() if v > 0)
        ratios += [(sizes[0], n, log(speeds[n] / speeds[sizes[0]])) for n in sizes[1:]]
    if not ratios:
        return None

    def error(loss: float) -> float:
        return sum((log(law(n, loss) / law(first, loss)) - seen) ** 2 for first, n, seen in ratios)

    return min((step / _STEPS for step in range(_STEPS + 1)), key=error)


def curve(speeds: Mapping[int, float], sizes: Iterable[int], reference: int, loss: float) -> Curve:
    """Speed at each size relative to the reference size: as measured, or by the law."""
    base = speeds.get(reference) or 1.0
    residuals = [log(v / base / (law(n, loss) / law(reference, loss))) for n, v in speeds.items() if v > 0]
    # A law fitted to one size is certain only at that size.
    spread = sqrt(sum(r * r for r in residuals) / (len(residuals) - 1)) if len(residuals) > 1 else 0.3
    points = []
    for n in sorted({*sizes, *speeds, reference}):
        if speeds.get(n, 0.0) > 0 or n == reference:
            points.append(Point(float(n), speeds.get(n, base) / base, 0.0, 1))
        else:
            mean = law(n, loss) / law(reference, loss)
            points.append(Point(float(n), mean, mean * spread, 0))
    return Curve(tuple(points))
