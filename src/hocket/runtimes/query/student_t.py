"""Quantiles of Student's t, without an import that takes longer than most queries."""

from __future__ import annotations

from functools import cache
from math import exp, lgamma, log

_TOLERANCE = 1e-12


@cache
def quantile(probability: float, freedom: int) -> float:
    """The value that t is below with this probability, which is above one half."""
    low, high = 0.0, 1.0
    while _cdf(high, freedom) < probability:
        high *= 2.0
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        if _cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _cdf(t: float, freedom: int) -> float:
    return 1.0 - 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta(1.0 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x)) / a
    c, d, total = 1.0, 0.0, 1.0
    for n in range(1000):
        m = n // 2
        if n == 0:
            term = 1.0
        elif n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d)
        c = 1.0 + term / c
        total *= c * d
        if n and abs(1.0 - c * d) < 1e-16:
            break
    return front * (total - 1.0)
