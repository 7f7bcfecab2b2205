"""The reports of a job over all its time, in bounded room: the longer it runs, the fewer of them are kept."""

from __future__ import annotations

from msgspec import Struct

_MOST = 128  # points


class CurvePoint(Struct, frozen=True, array_like=True, gc=False):
    """One report."""

    at_s: float
    epoch: int
    step: int
    metrics: dict[str, float]


class ThinnedCurve(Struct):
    """Every so many reports one is kept; when there are too many, every second of them goes."""

    points: list[CurvePoint] = []
    every: int = 1
    since: int = 0  # reports since the last one that was kept

    def add(self, point: CurvePoint) -> None:
        """The job has reported."""
        self.since += 1
        if self.points and self.since < self.every:
            return
        self.since = 0
        self.points.append(point)
        if len(self.points) > _MOST:
            self.points = self.points[::2]
            self.every *= 2
