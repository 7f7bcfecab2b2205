"""TEE, Rotary's training-epoch estimator: how many epochs a job needs until its criterion holds.

Two estimates are made of the same data, the metric's values so far and the curves of similar past jobs:

* `as_printed`: one curve by weighted linear regression, as Rotary has it: all past values together weigh as much as one
  value of the job's own. The regression is linear in 1/epoch, since a straight line would pass 100 %.
* `chances`: the probability that the criterion holds by each epoch. The candidates are the curves of the past jobs and
  the families of `convergence.py`, with their learned weights; each may be shifted and stretched, under a normal
  prior that is narrow for similar past jobs and wide for families. How well a candidate has foretold the values so far
  is its weight (Bayesian linear regression in closed form, so no random numbers). `python -m benchmarks.rotary`
  measures how often its 80 % intervals hold the truth, on models that were held out whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, isfinite, log, sqrt
from typing import TYPE_CHECKING, Any

from hocket.estimators.convergence import PRIOR, log_weights, shapes
from hocket.model.criterion import Convergence, Goal
from hocket.model.curve import Curve, Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

Points = tuple[tuple[float, float], ...]  # (epoch, value), by ascending epoch
Past = tuple[tuple[float, Points], ...]  # (similarity, curve) of past jobs

MOST_ALIKE = 8  # past jobs that an estimate uses
HORIZON = 100  # epochs that are looked ahead where the criterion sets no end
_NOISE = 0.01  # standard deviation of one value, of the range: what is assumed before any is seen …
_NOISE_POINTS = 2.0  # … and how many points that assumption is worth
_ALIKE_SD, _UNLIKE_SD = 0.05, 0.35  # of shift and stretch of a past curve, for similarity 1 and 0, of its range
_FIRST, _WAY = 0.35, 0.4  # the first value of a curve of which nothing is known, and how far it goes, of the range
_FAMILY_SD = 0.30  # of the first value and of the way that a family's curve goes, of the range
_PAST_WEIGHT = 0.5  # prior probability of all past curves together, if one is wholly alike
_WIDER = 1.0  # factor on all standard deviations, so that intervals hold what they promise
_KEPT = 16  # points of a curve of probabilities


def as_printed(points: Points, past: Past, criterion: Goal | Convergence) -> float | None:
    """Epochs until the criterion holds by Rotary's regression; infinite if never, None without any data."""
    past_weight, xs, vs, xxs, xvs = _past_sums(past)
    weight = past_weight
    for k, v in points:
        if k > 0:
            x = 1.0 / k
            weight += 1.0
            xs += x
            vs += v
            xxs += x * x
            xvs += x * v
    if not weight:
        return None
    x_mean, v_mean = xs / weight, vs / weight
    xx, xv = xxs - xs * x_mean, xvs - xs * v_mean
    slope = xv / xx if xx > 1e-12 else 0.0
    limit = v_mean - slope * x_mean  # value = limit + slope / epoch
    if isinstance(criterion, Convergence):
        # The change from one epoch to the next is |slope| / (k (k - 1)).
        return 0.5 + sqrt(0.25 + abs(slope) / criterion.change)
    missing = (limit - criterion.target) * (1.0 if criterion.relation == ">=" else -1.0)
    step = slope if criterion.relation == ">=" else -slope
    if step >= 0:  # It does not improve: the criterion holds already, or never.
        return 1.0 if missing >= 0 else inf
    return max(1.0, -step / missing) if missing > 0 else inf


@lru_cache(maxsize=512)  # They are the same for all reports of a job.
def _past_sums(past: Past) -> tuple[float, float, float, float, float]:
    """Of past values v by x = 1/epoch, which weigh as one together: their weight, and the sums of x, v, x² and x·v."""
    old = [(1.0 / k, v, alike) for alike, curve in past for k, v in curve if k > 0]
    whole = sum(weight for _x, _v, weight in old)
    if not whole:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    return (
        1.0,
        sum(w * x for x, _v, w in old) / whole,
        sum(w * v for _x, v, w in old) / whole,
        sum(w * x * x for x, _v, w in old) / whole,
        sum(w * x * v for x, v, w in old) / whole,
    )


def chances(
    points: Points, past: Past, criterion: Goal | Convergence, last: int, wider: float = _WIDER
) -> Curve | None:
    """Epoch → the probability that the criterion holds by then, from the present epoch to `last`.

    None without any data, and if a value is not finite.
    """
    if not (points or past) or not all(isfinite(v) for _k, v in points):
        return None
    return _chances(points, past, criterion, last, wider)


@lru_cache(maxsize=4096)  # Simulated jobs and the trials of a sweep often report exactly the same values.
def _chances(points: Points, past: Past, criterion: Goal | Convergence, last: int, wider: float) -> Curve | None:
    import numpy as np

    now = int(points[-1][0]) if points else 0
    if now >= last:
        return None
    ahead = _epochs_ahead(now, last, isinstance(criterion, Convergence))
    if isinstance(criterion, Convergence) and len(ahead) < 2:
        return Curve((Point(float(last), 0.0),))  # A change takes two epochs.
    falls = isinstance(criterion, Goal) and criterion.relation == "<="
    sign = -1.0 if falls else 1.0
    epochs, values = [k for k, _v in points], np.array([sign * v for _k, v in points])
    low, scale = _range(points, past, sign)
    rows, means, sds, logs = _candidates(epochs, ahead, past, sign, low, scale, last)
    n = len(epochs)
    seen, to_come = rows[:, :n], rows[:, n:]
    mean, covariance, noise, evidence = _posterior(seen, values, means, sds, scale)
    weights = np.exp(logs + evidence - (logs + evidence).max())
    weights /= weights.sum()
    shift, stretch = mean
    both, crossed, squared = covariance
    if isinstance(criterion, Goal):
        foreseen = shift + stretch * to_come
        spread = both + to_come * (2.0 * crossed + squared * to_come) + noise
        there = _normal((foreseen - sign * criterion.target) / (wider * np.sqrt(spread)))
        by_candidate = np.maximum.accumulate(there, axis=1)
    else:
        step = to_come[:, 1:] - to_come[:, :-1]
        moved = stretch * step
        deviation = wider * np.sqrt(squared * step * step + 2.0 * noise)
        there = _normal((criterion.change - moved) / deviation) - _normal((-criterion.change - moved) / deviation)
        by_candidate = 1.0 - np.cumprod(1.0 - np.clip(there, 0.0, 1.0), axis=1)
        ahead = ahead[1:]
    found = weights @ by_candidate
    return _thinned(ahead, found.tolist())


def forget() -> None:
    """Drop all that is kept from one estimate to the next, for measurements."""
    for kept in (_chances, _past_sums, _past_curves, _past_range):
        kept.cache_clear()


def _epochs_ahead(now: int, last: int, every: bool) -> list[int]:
    """The epochs to look at: each where changes between two in a row count (with the one before), else ever fewer."""
    if every:
        return list(range(max(now, 1), min(last, max(now, 1) + HORIZON) + 1))
    ahead, step = [], 1.0
    at = float(now + 1)
    while at < last:
        ahead.append(int(at))
        if len(ahead) > 24:
            step *= 1.2
        at += step
    return sorted({*ahead, last})


def _range(points: Points, past: Past, sign: float) -> tuple[float, float]:
    """Where values lie: from what was seen of this job and of others, and 0 to 1 for shares."""
    values = [sign * v for _k, v in points]
    values += [sign * v for v in _past_range(past)]
    low, high = min(values), max(values)
    if sign > 0 and low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    return low, (high - low) or abs(high) or 1.0


@lru_cache(maxsize=512)  # They are the same for all reports of a job.
def _past_range(past: Past) -> tuple[float, ...]:
    """The least and the largest of all past values."""
    values = [v for _alike, curve in past for _k, v in curve]
    return (min(values), max(values)) if values else ()


def _candidates(
    epochs: Sequence[float], ahead: Sequence[int], past: Past, sign: float, low: float, scale: float, last: int
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Each candidate's curve at the epochs seen and to come, the prior of its shift and stretch, and its weight."""
    import numpy as np

    at = [*epochs, *map(float, ahead)]
    most, first_of_past, way_of_past, known = _past_curves(past, sign)
    share = _PAST_WEIGHT * most
    drawn = _shapes_at(at, max(last, 2))
    # Where a family's curve begins and how far it goes: as past curves did, so far as they are alike.
    first = (1.0 - most) * (low + _FIRST * scale) + first_of_past
    way = (1.0 - most) * _WAY * scale + way_of_past
    families, count = len(drawn), len(drawn) + len(known)
    rows, means, sds, logs = np.empty((count, len(at))), np.empty((count, 2)), np.empty((count, 2)), np.empty(count)
    rows[:families], means[:families], sds[:families] = drawn, (first, way), _FAMILY_SD * scale
    logs[:families] = log_weights(PRIOR)
    logs[:families] += log(1.0 - share)
    for row, (part, wide, middle, known_k, known_v) in enumerate(known, families):
        # Stretched around its middle, so that shift and stretch are independent.
        rows[row] = np.interp(at, known_k, known_v)
        rows[row] -= middle
        means[row], sds[row], logs[row] = (middle, 1.0), (wide * scale, wide), log(share * part)
    return rows, means, sds, logs


@lru_cache(maxsize=512)  # They are the same for all reports of a job.
def _past_curves(
    past: Past, sign: float
) -> tuple[float, float, float, list[tuple[float, float, float, Numbers, Numbers]]]:
    """The largest similarity, where past curves begin and how far they go, weighed by it; and each of them.

    Of each: its part of all similarity, how wide its shift and stretch may be, its middle, its epochs and its values.
    """
    import numpy as np

    curves = [(alike, curve) for alike, curve in past if curve]
    most, total = max((alike for alike, _c in curves), default=0.0), sum(alike for alike, _c in curves)
    first = way = 0.0
    found = []
    for alike, curve in curves:
        values = [sign * v for _k, v in curve]
        first += most * alike / total * values[0]
        way += most * alike / total * (values[-1] - values[0])
        wide = _ALIKE_SD + (_UNLIKE_SD - _ALIKE_SD) * (1.0 - alike)
        middle = sum(values) / len(values)
        found.append((alike / total, wide, middle, np.array([k for k, _v in curve]), np.array(values)))
    return most, first, way, found


def _shapes_at(at: Sequence[float], last: int) -> Numbers:
    """Each shape at these epochs: 0 at the first, 1 at the last."""
    import numpy as np

    if at[-1] <= last and all(k == int(k) and k >= 1 for k in at):
        return _whole_shapes(last)[:, np.array(at, dtype=int) - 1]
    return shapes((1.0, *(max(k, 1.0) for k in at)), float(last))[:, 1:]


@lru_cache(maxsize=64)
def _whole_shapes(last: int) -> Numbers:
    """Each shape at each epoch from the first to the last."""
    return shapes((1.0, *(float(k) for k in range(1, last + 1))), float(last))[:, 1:]


def _posterior(
    seen: Numbers, values: Numbers, means: Numbers, sds: Numbers, scale: float
) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers, Numbers], Numbers, Numbers]:
    """Shift and stretch of each candidate after the values seen: means, (co)variances, noise variance, log evidence.

    All but the evidence are columns, a row for each candidate. The matrices are two by two, so they are written out.
    """
    import numpy as np

    n = seen.shape[1]
    shift, stretch = means[:, :1], means[:, 1:]
    prior_shift, prior_stretch = sds[:, :1] ** -2.0, sds[:, 1:] ** -2.0
    floor = (_NOISE * scale) ** 2
    noise = np.full_like(shift, floor)
    if not n:
        none = np.zeros_like(shift)
        return (shift, stretch), (1.0 / prior_shift, none, 1.0 / prior_stretch), noise, none[:, 0]
    left = values - shift - stretch * seen
    xs, xxs = seen.sum(axis=1, keepdims=True), (seen * seen).sum(axis=1, keepdims=True)
    ls, xls = left.sum(axis=1, keepdims=True), (seen * left).sum(axis=1, keepdims=True)
    for _ in range(2):  # First with the noise that is assumed, then with that around the first fit.
        a, b, c = prior_shift + n / noise, xs / noise, prior_stretch + xxs / noise
        determinant = a * c - b * b
        by_shift, by_stretch = (c * ls - b * xls) / (determinant * noise), (a * xls - b * ls) / (determinant * noise)
        rest = left - by_shift - by_stretch * seen
        squares = (rest * rest).sum(axis=1, keepdims=True)
        evidence_noise = noise
        noise = (_NOISE_POINTS * floor + squares) / (_NOISE_POINTS + n)
    penalty = by_shift * by_shift * prior_shift + by_stretch * by_stretch * prior_stretch
    log_det = np.log(determinant / (prior_shift * prior_stretch))
    evidence = -0.5 * (n * np.log(evidence_noise) + squares / evidence_noise + penalty + log_det)
    covariance = c / determinant, -b / determinant, a / determinant
    return (shift + by_shift, stretch + by_stretch), covariance, noise, evidence[:, 0]


def _normal(z: Numbers) -> Numbers:
    """The standard normal distribution, by its logistic approximation."""
    import numpy as np

    found: Numbers = 1.0 / (1.0 + np.exp(-np.clip(z * (1.5976 + 0.070566 * z * z), -60.0, 60.0)))
    return found


def _thinned(epochs: Sequence[int], probabilities: Sequence[float]) -> Curve:
    """A curve of few points that passes through the same probabilities, as far as a plot would show."""
    kept = [0]
    last = len(epochs) - 1
    for i in range(1, last):
        if probabilities[i] - probabilities[kept[-1]] >= 1.0 / _KEPT:
            if i - 1 > kept[-1]:
                kept.append(i - 1)  # Where it begins to rise.
            kept.append(i)
    if last > kept[-1]:
        kept.append(last)
    return Curve(tuple(Point(float(epochs[i]), round(min(1.0, probabilities[i]), 6)) for i in kept))
