"""The half width of an interval, from answers that leave out one replicate each."""

from __future__ import annotations

from math import cbrt, sqrt

_SMALL = 1e-6  # of skewness: nothing is changed by less


def half_width(standard_error: float, skewness: float, quantile: float, replicates: int) -> float:
    """Of an interval that holds on both sides, by a quantile of Student's t and the skewness of the replicates.

    Where a few large values make much of a sum, samples without them have a sum that is too small and a spread that is
    too small, too. The longer side of Willink's interval for means of skewed values (2005) allows for that.
    """
    a = _believed(skewness, replicates) / (6 * sqrt(replicates))
    if a < _SMALL:
        return quantile * standard_error
    return (1 - cbrt(1 - 6 * a * (quantile + a))) / (2 * a) * standard_error


def _believed(skewness: float, replicates: int) -> float:
    """The size of the skewness, less what there is by chance without any."""
    n = replicates
    by_chance = 6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3))  # the variance of it in normal samples
    size = abs(skewness)
    return size * max(0.0, 1 - by_chance / size**2) if size > _SMALL else 0.0
