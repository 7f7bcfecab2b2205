"""Beliefs: what is estimated about a job, and how certain each estimate is."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

from msgspec import Struct


class Estimate(Struct, frozen=True, gc=False):
    """An estimated number with its uncertainty."""

    mean: float  # the most likely value, in the unit of what is estimated
    sd: float = 0.0  # standard deviation in the same unit; 0: certain, infinity: a guess


class Point(Struct, frozen=True, gc=False, array_like=True):
    """One point of a curve; `seen` counts the observations it rests on, 0 for none."""

    x: float  # value of the variable: a size, an epoch, a number of rows
    mean: float  # the estimate there
    sd: float = 0.0  # its standard deviation; 0: certain
    seen: int = 0  # observations that it rests on; 0: it was told or guessed


class Curve(Struct, frozen=True, gc=False):
    """A belief over one variable: size → speed, machines → COMP time, epochs → quality, rows → error."""

    points: tuple[Point, ...]  # what is known, by ascending x; at least one

    def first_at_least(self, level: float) -> float | None:
        """The least x at which a curve that rises is at this level; None if it never is."""
        before = None
        for point in self.points:
            if point.mean >= level:
                if before is None or point.mean <= before.mean:
                    return point.x
                return before.x + (level - before.mean) / (point.mean - before.mean) * (point.x - before.x)
            before = point
        return None

    def at(self, x: float) -> Estimate:
        """The belief at x: a point, or between two of them; beyond the ends nothing is known but the end."""
        points = self.points
        i = bisect_left(points, x, key=lambda p: p.x)
        if i < len(points) and points[i].x == x:
            return Estimate(points[i].mean, points[i].sd)
        if i == 0 or i == len(points):
            return Estimate(points[0 if i == 0 else -1].mean, inf)
        low, high = points[i - 1], points[i]
        share = (x - low.x) / (high.x - low.x)
        return Estimate(low.mean + share * (high.mean - low.mean), max(low.sd, high.sd))


NEVER = 1e12  # units: JSON has no infinity
# The time of a query grows with its share f of the data about as f^0.6: the median of `workloads/tpch_batches.json`.
QUERY_TIME_EXPONENT = 0.6


class Beliefs(Struct, frozen=True, gc=False):
    """All that is estimated about one job; what is unknown is None."""

    run_s: Estimate | None = None  # seconds from start to end at the reference size, without interruption
    reference_size: int = 1  # replicas to which `run_s` and `speed` refer
    speed: Curve | None = None  # size → speed, 1 at the reference size
    kinds: dict[str, float] = {}  # GPU kind → speed relative to the reference; a kind not named counts 1
    spread: float = 1.0  # speed when its replicas span nodes, relative to one node
    comp_s: Curve | None = None  # machines → COMP time of an iteration in seconds
    comm_s: Curve | None = None  # machines → COMM time of an iteration in seconds
    slowest: Curve | None = None  # machines → time of a phase on the slowest of them, over the mean
    link: float = 1.0  # share of COMM time in which the link is busy
    meeting_s: float = 0.0  # of an iteration: its machines go on together, with neither processor nor link
    own_part: float = 0.0  # on m machines COMM takes 1 − own_part/m of what it would on very many
    slowdown: Curve | None = None  # number of jobs beside it → by what factor it is slower
    quality: Curve | None = None  # epochs → value of its metric
    reach: Curve | None = None  # value of its metric → how likely it gets there by its last epoch
    memory_mib: Curve | None = None  # batch size → memory in MiB; of a query, at 0
    error: Curve | None = None  # share of its data that a query has read → error of its answer
    # A unit of work is an epoch of training, or all data of a query. These are kept for policies that read past jobs.
    times: Curve | None = None  # units done → seconds of work by then, at the reference size
    unit_s: Estimate | None = None  # seconds of work of a unit
    completes: Curve | None = None  # units → probability that its criterion holds by then
    needs_units: float | None = None  # units until its criterion holds, as Rotary computes it; NEVER if it never does
    progress: Curve | None = None  # seconds of work → accuracy of a query, as Rotary computes it

    def speed_at(self, size: int) -> float:
        """Speed at a `size` (number of replicas), relative to the reference size; proportional where it is unknown."""
        if size == self.reference_size:
            return 1.0
        if self.speed is None:
            return size / self.reference_size
        for point in self.speed.points:  # Few, and mostly one of them is meant.
            if point.x == size:
                return point.mean
        return self.speed.at(size).mean

    def pace_on(self, kind: str, nodes: int) -> float:
        """By what factor that speed changes on GPUs of this `kind` and on so many `nodes`."""
        pace = self.kinds.get(kind, 1.0) if self.kinds else 1.0
        return pace * self.spread if nodes > 1 else pace


NO_BELIEFS = Beliefs()
