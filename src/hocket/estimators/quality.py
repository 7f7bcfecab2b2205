"""Epochs to a goal: a curve through the metric so far, refitted when points arrive, as in Optimus.

The distance to the best possible value falls as e(k) = 1 / (b0·k + b1) + b2 with b0, b1, b2 ≥ 0, k in epochs. For
a given b2 that is linear in b0 and b1, so they follow by non-negative least squares; b2 is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, isfinite, sqrt

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.criterion import Epochs, Goal, Steps
from hocket.model.curve import Beliefs, Curve, Estimate, Point

_ENOUGH = 3  # points that are needed to fit a curve with three coefficients
_MOST = 16  # points that a fit uses; from a longer history, evenly spread
_STEPS = 24  # of the search for b2, and of the refinement around its best
_FORESEEN = 8  # predicted points of the curve


class Fit(Struct, frozen=True, gc=False):
    """e(k) = 1 / (b0·k + b1) + b2, and the distance of the points from it."""

    b0: float
    b1: float
    b2: float
    rms: float

    def missing(self, epochs: float) -> float:
        """The distance to the best value after so many epochs."""
        return 1.0 / (self.b0 * epochs + self.b1) + self.b2

    def epochs_to(self, missing: float) -> float | None:
        """After how many epochs the distance is at most this; None: never."""
        if missing <= self.b2 or self.b0 <= 0:
            return None
        return max(0.0, (1.0 / (missing - self.b2) - self.b1) / self.b0)


def fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """The curve through (epochs, missing) pairs; None if no falling curve fits them."""
    least = min(e for _k, e in points)
    if least <= 0:
        return None
    best, low, high = None, 0.0, least
    for _ in range(2):  # First a coarse search, then a finer one around the best.
        step = (high - low) / _STEPS
        for i in range(_STEPS):
            found = _fit_with(points, low + i * step)
            if found is not None and (best is None or found.rms < best.rms):
                best = found
        if best is None:
            return None
        low, high = max(0.0, best.b2 - step), min(least, best.b2 + step)
    return best


# The same jobs report the same values when they are simulated or replayed again, and a fit is half of such a run.
_fit_of = lru_cache(maxsize=1024)(fit)


def _fit_with(points: Sequence[tuple[float, float]], b2: float) -> Fit | None:
    """Least squares for b0 and b1 on 1 / (e - b2) = b0·k + b1, weighted so that errors count as they do in e."""
    aa = ab = bb = ay = by = 0.0
    for k, e in points:
        over = e - b2
        weight = over * over
        a = weight * k
        aa += a * a
        ab += a * weight
        bb += weight * weight
        ay += a * over
        by += weight * over
    b0, b1 = nonnegative(aa, ab, bb, ay, by)
    squares = 0.0
    for k, e in points:
        denominator = b0 * k + b1
        if denominator <= 0:
            return None
        squares += (1.0 / denominator + b2 - e) ** 2
    return Fit(b0, b1, b2, sqrt(squares / len(points)))


def nonnegative(aa: float, ab: float, bb: float, ay: float, by: float) -> tuple[float, float]:
    """The two non-negative coefficients that solve the normal equations best: inside, or on the better edge."""
    determinant = aa * bb - ab * ab
    if determinant > 1e-12 * aa * bb:
        first, second = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
        if first >= 0 and second >= 0:
            return first, second
    edges = [(max(0.0, ay / aa) if aa else 0.0, 0.0), (0.0, max(0.0, by / bb) if bb else 0.0)]
    return min(edges, key=lambda c: c[0] * (c[0] * aa - 2 * ay) + c[1] * (c[1] * bb - 2 * by))


def noted(beliefs: Beliefs, epoch: int, value: float, is_step: bool = False) -> Beliefs:
    """Beliefs with one more point of the observed curve, and no prediction; a long history is thinned out.

    Jobs report some of their steps only, so each of those counts.
    """
    if epoch < 1 or not isfinite(value) or (epoch > _MOST and not is_step and epoch % (epoch // _MOST)):
        return beliefs
    seen = {p.x: p for p in (beliefs.quality.points if beliefs.quality is not None else ()) if p.seen}
    seen[float(epoch)] = Point(float(epoch), value, 0.0, 1)
    return replace(beliefs, quality=Curve(tuple(spread_out([seen[x] for x in sorted(seen)], 4 * _MOST))))


def refitted(beliefs: Beliefs, goal: Goal, epoch: int, value: float, done_s: float, is_step: bool = False) -> Beliefs:
    """Beliefs after a job with a goal reported this value, having done so much work: its curve and its run time.

    Earlier points, also those of a profile, count like its own. If the curve never reaches the goal, the estimate of
    the run time stays, unless the goal sets a number of epochs. Of a job without epochs, the `epoch` is a step.
    """
    noticed = noted(beliefs, epoch, value, is_step)
    if noticed is beliefs or noticed.quality is None:
        return beliefs
    points = list(noticed.quality.points)
    rises = goal.relation == ">="
    best = _best_conceivable(goal, points)
    missing = tuple((p.x, best - p.mean if rises else p.mean - best) for p in spread_out(points, _MOST))
    found = _fit_of(missing) if len(points) >= _ENOUGH else None
    if found is None:
        return noticed
    at = found.epochs_to(abs(best - goal.target))
    if isinstance(goal.deadline, Epochs | Steps):
        at = goal.deadline.count if at is None else min(at, goal.deadline.count)
    run_s = beliefs.run_s
    last = float(epoch + 1 if at is None else max(epoch + 1, ceil(at)))
    if at is not None and done_s > 0:
        epoch_s = done_s / epoch
        slope = abs(found.missing(last) - found.missing(last + 1)) or found.rms
        run_s = Estimate(last * epoch_s, epoch_s * found.rms / slope if slope else 0.0)
    step = max(1.0, (last - epoch) / _FORESEEN)
    ahead = [epoch + i * step for i in range(1, _FORESEEN + 1) if epoch + i * step <= last]
    foreseen = [Point(x, best - found.missing(x) if rises else best + found.missing(x), found.rms) for x in ahead]
    own = [p for p in points if p.x <= epoch] + foreseen
    beyond = [p for p in points if p.x > own[-1].x]  # a profile that is longer than the job
    return replace(beliefs, run_s=run_s, quality=Curve(tuple(own + beyond)))


def foreseen(points: list[Point], goal: Goal) -> list[Point]:
    """How the metric of a goal will go on after these values by epochs (or steps): to the goal, at most as far again.

    Where the curve never gets to the goal, half as far again.
    """
    if len(points) < _ENOUGH:
        return []
    done = points[-1].x
    rises, best = goal.relation == ">=", _best_conceivable(goal, points)
    found = _fit_of(tuple((p.x, best - p.mean if rises else p.mean - best) for p in spread_out(points, _MOST)))
    if found is None:
        return []
    at = found.epochs_to(abs(best - goal.target))
    last = 1.5 * done if at is None or at <= done else min(at, 2.0 * done)
    ahead = [done + (last - done) * n / _FORESEEN for n in range(1, _FORESEEN + 1)]
    return [Point(x, best - found.missing(x) if rises else best + found.missing(x), found.rms) for x in ahead]


def _best_conceivable(goal: Goal, points: Sequence[Point]) -> float:
    """The best possible value: 1 for shares that shall rise, 0 for a loss, else well beyond all values so far."""
    values = [goal.target, *(p.mean for p in points)]
    if goal.relation == ">=":
        return 1.0 if max(values) < 1 else max(values) + (max(values) - min(values)) + 1e-9
    return 0.0 if min(values) > 0 else min(values) - (max(values) - min(values)) - 1e-9


def spread_out(points: list[Point], most: int) -> list[Point]:
    """At most so many of them, evenly spread, including the last."""
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]
