"""What one run of Dorm's evaluation gives: plain data, for it comes from another process and is kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct

FIRST_S, DAY_S = 5 * 3600.0, 24 * 3600.0


class Moment(Struct, frozen=True):
    """As things are planned from now on."""

    at_s: float
    utilisation: float  # Σ_k u_k (1), from 0 to 3
    loss: float  # Σ_i |s_i - ŝ_i| of those that run (2)
    adjusted: int  # applications that were killed and resumed to get here (4)
    running: int
    waiting: int


class Played(Struct, frozen=True):
    """One run."""

    moments: tuple[Moment, ...]
    jct_s: dict[str, float]  # of applications that ended
    ran_s: dict[str, float]
    unfinished: int

    def mean_utilisation(self, until_s: float) -> float:
        """Over time, from the beginning."""
        return self._mean(until_s, lambda m: m.utilisation)

    def mean_loss(self, until_s: float) -> float:
        """Over time, from the beginning."""
        return self._mean(until_s, lambda m: m.loss)

    def most_utilisation(self, until_s: float) -> float:
        """The highest until then."""
        return max(m.utilisation for m in self.moments if m.at_s <= until_s)

    def most_loss(self, until_s: float) -> float:
        """The highest until then."""
        return max(m.loss for m in self.moments if m.at_s <= until_s)

    @property
    def most_adjusted(self) -> int:
        """By one decision."""
        return max(m.adjusted for m in self.moments)

    def adjusted_before(self, until_s: float) -> int:
        """In all, until then."""
        return sum(m.adjusted for m in self.moments if m.at_s <= until_s)

    def _mean(self, until_s: float, value: Callable[[Moment], float]) -> float:
        area = 0.0
        for a, b in pairwise((*self.moments, Moment(until_s, 0.0, 0.0, 0, 0, 0))):
            area += value(a) * max(min(b.at_s, until_s) - a.at_s, 0.0)
            if b.at_s >= until_s:
                break
        return area / until_s
