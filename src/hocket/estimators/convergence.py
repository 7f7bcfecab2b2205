"""The probability that a metric reaches a value by an epoch: a weighted mixture of learning-curve families.

Each family says how much of the way from the first epoch to the last is done at epoch k, for a grid of shapes: a power
law, an inverse, an exponential, a sigmoid, a logarithm, a line. A curve of one shape has two coefficients left, that is
where it starts and how long its way is; with a flat prior on the one and on the logarithm of the other, the posterior
weight of a shape and what it predicts for the last epoch follow in closed form, for all shapes at once. That is the
extrapolation of Domhan et al. (IJCAI'15), which MLFS names, without its sampling, so it needs no random numbers.
`PRIOR` has the weights of the families, learned from measured curves.

No family predicts when a model that has learned nothing yet will begin to learn: if a curve has not moved, apart from
noise, it is assumed to begin with a probability equal to the share of epochs left, and may then reach any value. Nor do
they predict sudden jumps, for example after a step of the learning rate; load control allows for these separately
(`policies/mlfs_c.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, pi, sqrt
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.criterion import Goal
from hocket.model.curve import Beliefs, Curve, Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

Points = Sequence[tuple[float, float]]  # (epoch, value), by ascending epoch

ENOUGH = 5  # points that are needed before anything is estimated
_POWERS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5)
_BENDS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2)  # where a curve bends, as shares of all epochs
_MIDDLES = (*_BENDS[:5], 0.45, 0.6, 0.8, 1.0, 1.2)  # where a sigmoid bends, which may be late
_STEEPS = (2.0, 4.0, 8.0, 16.0)  # The steepest represent models that learn late, and then suddenly.
FAMILIES = {  # and how many shapes each has
    "power": len(_POWERS),
    "inverse": len(_BENDS),
    "exponential": len(_BENDS),
    "sigmoid": len(_MIDDLES) * len(_STEEPS),
    "logarithm": 1,
    "line": 1,
}
_NOISE = 0.02  # smallest noise, as a share of the range seen
_LATE = 0.5  # a point's weight is its epoch to this power: late points say most about what follows
_BEGUN = 1e-9  # share of its range: before that, a shape cannot be distinguished from others
_MOVED = 0.75  # share of the variance that a shape must explain; else all may be noise
_VALUES = 24  # of a curve that is believed
_LOGISTIC = pi / sqrt(3.0)  # errors are logistic, with heavier tails than normal ones; at this slope their sd is 1

Weights = tuple[float, ...]  # of the families
EQUAL: Weights = (1.0 / len(FAMILIES),) * len(FAMILIES)
PRIOR: Weights = (0.195, 0.049, 0.225, 0.512, 0.010, 0.009)  # `python -m benchmarks.convergence` prints them


class Outlook(Struct, frozen=True):
    """A metric's predicted value at its last epoch: a mixture over shapes. Falling metrics are negated."""

    means: Any
    sds: Any
    weights: Any  # sum up to 1
    rises: bool
    begins: float = 0.0  # the probability that it has not begun to move yet, and may then reach any value

    def reaches(self, values: Sequence[float]) -> Numbers:
        """The probability of reaching each of these values by then, without sudden jumps."""
        import numpy as np

        wanted = np.asarray(values, float) if self.rises else -np.asarray(values, float)
        missing = wanted[:, None] - self.means
        chances = 1.0 / (1.0 + np.exp(np.clip(missing / self.sds * _LOGISTIC, -60.0, 60.0)))
        found: Numbers = self.begins + (1.0 - self.begins) * (chances @ self.weights)
        return found

    def weighed(self, prior: Weights) -> Outlook:
        """The same prediction with other weights of the families; this one must have been made with `EQUAL` ones."""
        import numpy as np

        weights = self.weights * np.repeat(np.array(prior), list(FAMILIES.values()))
        return replace(self, weights=weights / weights.sum())


def outlook(points: Points, last: float, rises: bool, prior: Weights = PRIOR) -> Outlook | None:
    """The prediction for epoch `last` from these points; None if they are too few."""
    import numpy as np

    if len(points) < ENOUGH or not 0 < points[-1][0] < last:
        return None
    epochs, values = np.array(points, float).T
    values = values if rises else -values
    span = float(values.max() - values.min())
    # A metric that never moved is assumed to move by an insignificant amount.
    size = float(np.abs(values).max())
    span = span if span > 1e-12 * size + 1e-100 else max(1e-3 * size, 1e-12)
    z = (values - values[0]) / span
    w = np.maximum(epochs, 0.5) ** _LATE
    w /= w.sum()
    n = 1.0 / float(w @ w)  # the effective number of points
    phi = shapes(tuple(epochs.tolist()), float(last))
    x_mean, z_mean = phi @ w, float(z @ w)
    x, y = phi - x_mean[:, None], z - z_mean
    xx, xy, yy = (x * x) @ w, (x * y) @ w, float(y * y @ w)
    has_begun = xx > _BEGUN**2
    xx = np.where(has_begun, xx, 1.0)
    slope = xy / xx
    noise = np.maximum(yy - slope * xy, 0.0) + _NOISE**2
    ahead = 1.0 - x_mean
    sds = np.sqrt(noise * n / max(n - 2.0, 1.0) * (1.0 + 1.0 / n + ahead * ahead / (n * xx)))
    left = float(np.maximum(yy - slope * xy, 0.0).min()) / yy if yy > 0 else 1.0
    way = np.maximum(np.abs(slope), _NOISE)
    evidence = log_weights(prior) - 0.5 * (n - 2.0) * np.log(noise) - 0.5 * np.log(xx) - np.log(way)
    evidence = np.where(has_begun, evidence, -np.inf)
    weights = np.exp(evidence - evidence.max())
    means = values[0] + span * (z_mean + slope * ahead)
    has_moved = 1.0 - left * (n - 1.0) / max(n - 3.0, 1.0) >= _MOVED
    begins = 0.0 if has_moved else 1.0 - float(epochs[-1]) / last
    return Outlook(means, sds * span, weights / weights.sum(), rises, begins)


def family_weights(found: Outlook) -> Weights:
    """The posterior probability of each family."""
    import numpy as np

    ends = np.cumsum(list(FAMILIES.values()))[:-1]
    return tuple(float(part.sum()) for part in np.split(found.weights, ends))


def learned(models: Sequence[Sequence[tuple[Points, float, bool]]], rounds: int = 20) -> Weights:
    """Weights of the families from whole curves, as (points, last epoch, rises), by model: all models count equally.

    Expectation maximisation; one more model, equal for all families, keeps each weight above 0.
    """
    from_equal = [
        [family_weights(o) for curve in curves if (o := outlook(*curve, EQUAL)) is not None] for curves in models
    ]
    weights = EQUAL
    for _ in range(rounds):
        sums = list(EQUAL)
        for known in from_equal:
            own = [_normal([w * p for w, p in zip(row, weights, strict=True)]) for row in known]
            for i in range(len(sums)):
                sums[i] += sum(w[i] for w in own) / len(own) if own else EQUAL[i]
        weights = _normal(sums)
    return weights


def _normal(weights: Sequence[float]) -> Weights:
    whole = sum(weights)
    return tuple(w / whole for w in weights)


def refitted(beliefs: Beliefs, goal: Goal, epoch: int, last: int, prior: Weights = PRIOR) -> Beliefs:
    """Beliefs with the probabilities of values at epoch `last`, from the reported points of the goal's metric.

    Points beyond the present epoch come from a profile, and do not count. If the others are too few, or not finite,
    there is no estimate.
    """
    points = beliefs.quality.points if beliefs.quality is not None else ()
    seen = tuple((p.x, p.mean) for p in points if p.seen and p.x <= epoch)
    rises = goal.relation == ">="
    found = _reach(seen, last, rises, goal.target, prior) if all(isfinite(v) for _k, v in seen) else None
    return beliefs if found is beliefs.reach else replace(beliefs, reach=found)


@lru_cache(maxsize=4096)  # Trials of one sweep, and simulated jobs, often report exactly the same values.
def _reach(
    seen: tuple[tuple[float, float], ...], last: int, rises: bool, target: float, prior: Weights
) -> Curve | None:
    """Value → the probability of reaching it by epoch `last`."""
    found = outlook(seen, last, rises, prior)
    if found is None:
        return None
    low, high = min(v for _k, v in seen), max(v for _k, v in seen)
    best, worst = (high, low) if rises else (low, high)
    stride = (best - worst or target - best or 1e-9) / (_VALUES - 4)
    values = sorted({target, *(best + i * stride for i in range(-3, _VALUES - 3))})
    return Curve(tuple(Point(v, float(p)) for v, p in zip(values, found.reaches(values), strict=True)))


@lru_cache(maxsize=64)
def log_weights(prior: Weights) -> Numbers:
    """The logarithm of each shape's prior weight: the shapes of a family share its weight."""
    import numpy as np

    counts = list(FAMILIES.values())
    found: Numbers = np.log(np.repeat(np.array(prior) / counts, counts))
    return found


@lru_cache(maxsize=1024)
def shapes(epochs: tuple[float, ...], last: float) -> Numbers:
    """The value of each shape at each epoch: 0 at the first, 1 at `last`."""
    import numpy as np

    k = np.array((*epochs, last))
    positive = np.maximum(k, 0.5)
    bends, middles = np.array(_BENDS)[:, None] * last, np.array(_MIDDLES)[:, None] * last
    raw = np.concatenate(
        [
            -(positive ** -np.array(_POWERS)[:, None]),
            -1.0 / (1.0 + k / bends),
            -np.exp(-k / bends),
            *(-1.0 / (1.0 + (k / middles) ** steep) for steep in _STEEPS),
            np.log(positive)[None, :],
            k[None, :],
        ]
    )
    first, end = raw[:, :1], raw[:, -1:]
    found: Numbers = ((raw - first) / np.maximum(end - first, 1e-12))[:, :-1]
    return found
