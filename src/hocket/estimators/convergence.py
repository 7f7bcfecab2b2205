"""Will a metric get to a value by an epoch, and how sure is that? A weighted mixture of learning-curve families.

Each family says how much of the way from the first epoch to the last is done at epoch k, for a grid of shapes: a power
law, an inverse, an exponential, a sigmoid, a logarithm, a line. A curve of one shape has two coefficients left, that is
where it starts and how long its way is; with a flat prior on the one and on the logarithm of the other, the posterior
weight of a shape and what it predicts for the last epoch follow in closed form, for all shapes at once. That is the
extrapolation of Domhan et al. (IJCAI'15), which MLFS names, without its sampling: seeded by nothing. `PRIOR` has the
weights of the families as measured curves taught them.

No family foresees what a step of the learning rate brings. So there is a second answer, for curves that may have steps:
then the metric gets further by an exponential amount, one time in twenty by more than the whole range seen so far,
for each e-fold of epochs to come. That states ignorance; it is fitted to nothing. Nor does any foresee when a model
that has learned nothing yet will begin to: a curve that has not moved, as far as noise lets one see, begins to with the
probability that is left of its epochs, and may then get anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, log, pi, sqrt
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.criterion import Goal
from hocket.model.curve import Beliefs, Curve, Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

Points = Sequence[tuple[float, float]]  # (epoch, value), by ascending epoch

ENOUGH = 5  # points, before anything is said
_POWERS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5)
_BENDS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2)  # where a curve bends, as shares of all epochs
_STEEPS = (2.0, 4.0)
FAMILIES = {  # and how many shapes each has
    "power": len(_POWERS),
    "inverse": len(_BENDS),
    "exponential": len(_BENDS),
    "sigmoid": len(_BENDS) * len(_STEEPS),
    "logarithm": 1,
    "line": 1,
}
_NOISE = 0.02  # of the range seen: no curve is known better than that
_LATE = 0.5  # the power of its epoch by which a point counts: the end of a curve tells most about what comes
_STEP = 1.0 / log(20.0)  # mean of what steps bring, in ranges seen, for each e-fold of epochs to come
_QUANTILES = 16  # that stand for the distribution of that
_MOVED = 0.75  # of the variance that was seen: so much a shape must explain, or all may be noise
_VALUES = 24  # of a curve that is believed
_LOGISTIC = pi / sqrt(3.0)  # errors are logistic, whose tails are heavier than normal's; at this slope their sd is 1

Weights = tuple[float, ...]  # of the families
EQUAL: Weights = (1.0 / len(FAMILIES),) * len(FAMILIES)
PRIOR: Weights = (0.412, 0.063, 0.318, 0.139, 0.041, 0.027)  # `python -m benchmarks.convergence` prints them


class Outlook(Struct, frozen=True):
    """Where a metric will be at its last epoch: a mixture over shapes. Falling metrics are turned round."""

    means: Any
    sds: Any
    weights: Any  # sum up to 1
    step: float  # mean of what steps bring, if there are any
    rises: bool
    begins: float = 0.0  # the probability that it only now begins to move, and may then get anywhere

    def reaches(self, values: Sequence[float], steps: bool = False) -> Numbers:
        """The probability of getting to each of these values by then; with steps, or without."""
        import numpy as np

        wanted = np.asarray(values, float) if self.rises else -np.asarray(values, float)
        brought = -self.step * np.log1p(-(np.arange(_QUANTILES) + 0.5) / _QUANTILES) if steps else np.zeros(1)
        missing = (wanted[:, None] - brought)[:, :, None] - self.means
        chances = 1.0 / (1.0 + np.exp(np.clip(missing / self.sds * _LOGISTIC, -60.0, 60.0)))
        found: Numbers = self.begins + (1.0 - self.begins) * (chances @ self.weights).mean(axis=1)
        return found


def outlook(points: Points, last: float, rises: bool, prior: Weights = PRIOR) -> Outlook | None:
    """What these points say about epoch `last`; None where they say too little."""
    import numpy as np

    if len(points) < ENOUGH or not 0 < points[-1][0] < last:
        return None
    epochs, values = np.array(points, float).T
    values = values if rises else -values
    span = float(values.max() - values.min())
    # One that never moved is taken to move by no more than digits that nobody looks at.
    size = float(np.abs(values).max())
    span = span if span > 1e-12 * size + 1e-100 else max(1e-3 * size, 1e-12)
    z = (values - values[0]) / span
    w = np.maximum(epochs, 0.5) ** _LATE
    w /= w.sum()
    n = 1.0 / float(w @ w)  # how many points of equal weight they are worth
    phi = _shapes(tuple(epochs.tolist()), float(last))
    x_mean, z_mean = phi @ w, float(z @ w)
    x, y = phi - x_mean[:, None], z - z_mean
    xx, xy, yy = (x * x) @ w, (x * y) @ w, float(y * y @ w)
    slope = xy / xx
    noise = np.maximum(yy - slope * xy, 0.0) + _NOISE**2
    ahead = 1.0 - x_mean
    sds = np.sqrt(noise * n / max(n - 2.0, 1.0) * (1.0 + 1.0 / n + ahead * ahead / (n * xx)))
    left = float(np.maximum(yy - slope * xy, 0.0).min()) / yy if yy > 0 else 1.0
    way = np.maximum(np.abs(slope), _NOISE)
    evidence = _start(prior) - 0.5 * (n - 2.0) * np.log(noise) - 0.5 * np.log(xx) - np.log(way)
    weights = np.exp(evidence - evidence.max())
    means = values[0] + span * (z_mean + slope * ahead)
    has_moved = 1.0 - left * (n - 1.0) / max(n - 3.0, 1.0) >= _MOVED
    begins = 0.0 if has_moved else 1.0 - float(epochs[-1]) / last
    step = _STEP * log(last / epochs[-1]) * span
    return Outlook(means, sds * span, weights / weights.sum(), step, rises, begins)


def family_weights(found: Outlook) -> Weights:
    """How much of the posterior each family has."""
    import numpy as np

    ends = np.cumsum(list(FAMILIES.values()))[:-1]
    return tuple(float(part.sum()) for part in np.split(found.weights, ends))


def learned(models: Sequence[Sequence[tuple[Points, float, bool]]], rounds: int = 20) -> Weights:
    """Weights of the families from whole curves, as (points, last epoch, rises), by model: each model counts alike.

    Expectation maximisation; one more model, to which all families are alike, keeps each of them possible.
    """
    weights = EQUAL
    for _ in range(rounds):
        sums = list(EQUAL)
        for curves in models:
            found = [outlook(points, last, rises, weights) for points, last, rises in curves]
            own = [family_weights(o) for o in found if o is not None]
            for i in range(len(sums)):
                sums[i] += sum(w[i] for w in own) / len(own) if own else EQUAL[i]
        weights = tuple(s / sum(sums) for s in sums)
    return weights


def refitted(beliefs: Beliefs, goal: Goal, epoch: int, last: int, prior: Weights = PRIOR) -> Beliefs:
    """Beliefs with what the points seen of the goal's metric say about getting to which value by epoch `last`.

    Those beyond its present epoch are a profile's, and do not count. Where the others say too little, or are no
    numbers, nothing is believed.
    """
    points = beliefs.quality.points if beliefs.quality is not None else ()
    seen = tuple((p.x, p.mean) for p in points if p.seen and p.x <= epoch)
    found = (
        _reach(seen, last, goal.relation == ">=", goal.target, prior) if all(isfinite(v) for _k, v in seen) else None
    )
    if found is None:
        return beliefs if beliefs.reach is None else replace(beliefs, reach=None, reach_stepping=None)
    smooth, stepping = found
    return replace(beliefs, reach=smooth, reach_stepping=stepping)


@lru_cache(maxsize=4096)  # Trials of one sweep, and simulated jobs, often report the very same values.
def _reach(
    seen: tuple[tuple[float, float], ...], last: int, rises: bool, target: float, prior: Weights
) -> tuple[Curve, Curve] | None:
    """Value → the probability of getting there by epoch `last`, without steps and with them."""
    found = outlook(seen, last, rises, prior)
    if found is None:
        return None
    low, high = min(v for _k, v in seen), max(v for _k, v in seen)
    best, worst = (high, low) if rises else (low, high)
    stride = (best - worst or target - best or 1e-9) / (_VALUES - 4)
    values = sorted({target, *(best + i * stride for i in range(-3, _VALUES - 3))})
    smooth, stepping = (
        Curve(tuple(Point(v, float(p)) for v, p in zip(values, found.reaches(values, steps), strict=True)))
        for steps in (False, True)
    )
    return smooth, stepping


@lru_cache(maxsize=64)
def _start(prior: Weights) -> Numbers:
    """The logarithm of each shape's weight before anything is seen: those of a family share its weight."""
    import numpy as np

    counts = list(FAMILIES.values())
    found: Numbers = np.log(np.repeat(np.array(prior) / counts, counts))
    return found


@lru_cache(maxsize=1024)
def _shapes(epochs: tuple[float, ...], last: float) -> Numbers:
    """How far each shape has come at each epoch: 0 at the first, 1 at `last`."""
    import numpy as np

    k = np.array((*epochs, last))
    positive = np.maximum(k, 0.5)
    bends = np.array(_BENDS)[:, None] * last
    raw = np.concatenate(
        [
            -(positive ** -np.array(_POWERS)[:, None]),
            -1.0 / (1.0 + k / bends),
            -np.exp(-k / bends),
            *(-1.0 / (1.0 + (k / bends) ** steep) for steep in _STEEPS),
            np.log(positive)[None, :],
            k[None, :],
        ]
    )
    first, end = raw[:, :1], raw[:, -1:]
    found: Numbers = ((raw - first) / np.maximum(end - first, 1e-12))[:, :-1]
    return found
