"""The mean of several runs, with its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from msgspec import Struct

# Student's t for 95 % of both sides, by degrees of freedom from 1; beyond the table the next lower entry is used,
# which errs on the wide side.
_T95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    25: 2.060, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980,
}  # fmt: skip


class MeanInterval(Struct, frozen=True):
    """A mean, and the half width of its 95 % interval; None for a single run."""

    mean: float
    half_width: float | None = None
    runs: int = 1


def mean_interval(values: Sequence[float]) -> MeanInterval | None:
    """Mean and 95 % interval, by Student's t; None of no values."""
    n = len(values)
    if not n:
        return None
    mean = sum(values) / n
    if n == 1:
        return MeanInterval(mean)
    deviation = sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    t = _T95[max(df for df in _T95 if df < n)]
    return MeanInterval(mean, t * deviation / sqrt(n), n)
