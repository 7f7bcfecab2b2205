"""Scaling laws: how much faster a job runs at a larger size, where nothing was measured.

    law:c      speed(n) = n / (1 + c (n - 1))   each further replica costs everyone a share c of a step
    power:p    speed(n) = n ** p
    linear     speed(n) = n                     law:0 and power:1 alike

Speeds are relative to one replica; a curve is relative to the job's reference size.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from hocket.model.curve import Curve, Point
from hocket.workloads.errors import WorkloadError, shown
from hocket.workloads.rules import BrokenRuleError, Number


class ScalingLaw(Struct, frozen=True):
    """Speed by size."""

    shape: Literal["law", "power", "linear"] = "law"
    parameter: float = 0.0  # from 0 to 1; `linear` has none

    def speed(self, size: int) -> float:
        """Relative to one replica."""
        if self.shape == "law":
            return size / (1 + self.parameter * (size - 1))
        return float(size**self.parameter) if self.shape == "power" else float(size)

    def curve(self, sizes: Iterable[int], reference_size: int) -> Curve:
        """Speed at each size, 1 at the reference size. Equal jobs share one curve."""
        return _curve(self, tuple(sizes), reference_size)

    def __str__(self) -> str:
        return self.shape if self.shape == "linear" else f"{self.shape}:{self.parameter:g}"


# What elastic jobs of generators and traces follow by default: 1.9 at 2, 3.5 at 4, 5.9 at 8.
USUAL_LAW = ScalingLaw("law", 0.05)


def parse_law(text: str) -> ScalingLaw:
    """`law:0.05`, `power:0.8` or `linear`."""
    shape, colon, parameter = text.partition(":")
    if shape == "linear" and not colon:
        return ScalingLaw("linear")
    if shape not in ("law", "power"):
        raise WorkloadError(f"speeds must be law:C, power:P or linear, not {shown(text)}")
    try:
        value = Number(high=1.0).of_text(parameter)
    except BrokenRuleError:
        raise WorkloadError(
            f"speeds {shown(text)}: {shape} must have a number from 0 to 1, not {shown(parameter)}"
        ) from None
    return ScalingLaw("law" if shape == "law" else "power", value)


@lru_cache(maxsize=4096)
def _curve(law: ScalingLaw, sizes: tuple[int, ...], reference_size: int) -> Curve:
    unit = law.speed(reference_size)
    return Curve(tuple(Point(float(n), law.speed(n) / unit) for n in sorted({*sizes, reference_size})))
