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
    every = [(1.0 / k, v, 1.0) for k, v in points if k > 0]
    old = [(1.0 / k, v, alike) for alike, curve in past for k, v in curve if k > 0]
    if whole := sum(weight for _x, _v, weight in old):
        every += [(x, v, weight / whole) for x, v, weight in old]  # All of them weigh as one.
    if not every:
        return None
    weight = sum(w for _x, _v, w in every)
    x_mean = sum(w * x for x, _v, w in every) / weight
    v_mean = sum(w * v for _x, v, w in every) / weight
    xx = sum(w * (x - x_mean) ** 2 for x, _v, w in every)
    slope = sum(w * (x - x_mean) * (v - v_mean) for x, v, w in every) / xx if xx > 1e-12 else 0.0
    limit = v_mean - slope * x_mean  # value = limit + slope / epoch
    if isinstance(criterion, Convergence):
        # The change from one epoch to the next is |slope| / (k (k - 1)).
        return 0.5 + sqrt(0.25 + abs(slope) / criterion.change)
    missing = (limit - criterion.target) * (1.0 if criterion.relation == ">=" else -1.0)
    step = slope if criterion.relation == ">=" else -slope
    if step >= 0:  # It does not improve: the criterion holds already, or never.
        return 1.0 if missing >= 0 else inf
    return max(1.0, -step / missing) if missing > 0 else inf


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
    x = np.stack([np.ones_like(to_come), to_come], axis=-1)  # candidates × epochs × 2
    foreseen = np.einsum("cek,ck->ce", x, mean)
    if isinstance(criterion, Goal):
        spread = np.einsum("cek,ckl,cel->ce", x, covariance, x) + noise[:, None]
        there = _normal((foreseen - sign * criterion.target) / (wider * np.sqrt(spread)))
        by_candidate = np.maximum.accumulate(there, axis=1)
    else:
        step = x[:, 1:] - x[:, :-1]
        moved = np.einsum("cek,ck->ce", step, mean)
        spread = np.einsum("cek,ckl,cel->ce", step, covariance, step) + 2.0 * noise[:, None]
        deviation = wider * np.sqrt(spread)
        there = _normal((criterion.change - moved) / deviation) - _normal((-criterion.change - moved) / deviation)
        by_candidate = 1.0 - np.cumprod(1.0 - np.clip(there, 0.0, 1.0), axis=1)
        ahead = ahead[1:]
    found = weights @ by_candidate
    return _thinned(ahead, found.tolist())


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
    values = [sign * v for _k, v in points] + [sign * v for _alike, curve in past for _k, v in curve]
    low, high = min(values), max(values)
    if sign > 0 and low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    return low, (high - low) or abs(high) or 1.0


def _candidates(
    epochs: Sequence[float], ahead: Sequence[int], past: Past, sign: float, low: float, scale: float, last: int
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Each candidate's curve at the epochs seen and to come, the prior of its shift and stretch, and its weight."""
    import numpy as np

    at = [*epochs, *(float(k) for k in ahead)]
    most = max((alike for alike, curve in past if curve), default=0.0)
    share = _PAST_WEIGHT * most
    family_logs = log_weights(PRIOR) + log(1.0 - share)
    # Shapes are 0 at the first epoch given and 1 at the last: the first epoch is always given.
    drawn = shapes((1.0, *(max(k, 1.0) for k in at)), float(max(last, 2)))[:, 1:]
    curves = [(alike, [(k, sign * v) for k, v in curve]) for alike, curve in past if curve]
    total = sum(alike for alike, _c in curves)
    # Where a family's curve begins and how far it goes: as past curves did, so far as they are alike.
    first, way = (1.0 - most) * (low + _FIRST * scale), (1.0 - most) * _WAY * scale
    for alike, curve in curves:
        first += most * alike / total * curve[0][1]
        way += most * alike / total * (curve[-1][1] - curve[0][1])
    rows, means, sds = [drawn], [(first, way)] * len(drawn), [(_FAMILY_SD * scale, _FAMILY_SD * scale)] * len(drawn)
    logs = [family_logs]
    for alike, curve in curves:
        known_k, known_v = [k for k, _v in curve], [v for _k, v in curve]
        row = np.interp(at, known_k, known_v)
        wide = _ALIKE_SD + (_UNLIKE_SD - _ALIKE_SD) * (1.0 - alike)
        middle = sum(known_v) / len(known_v)
        # Stretched around its middle, so that shift and stretch are independent.
        rows.append((row - middle)[None, :])
        means.append((middle, 1.0))
        sds.append((wide * scale, wide))
        logs.append(np.array([log(share * alike / total)]))
    return np.concatenate(rows), np.array(means), np.array(sds), np.concatenate(logs)


def _posterior(
    seen: Numbers, values: Numbers, means: Numbers, sds: Numbers, scale: float
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Shift and stretch of each candidate after the values seen: mean, covariance, noise variance and log evidence."""
    import numpy as np

    count, n = seen.shape
    prior = np.zeros((count, 2, 2))
    prior[:, 0, 0], prior[:, 1, 1] = sds[:, 0] ** -2.0, sds[:, 1] ** -2.0
    floor = (_NOISE * scale) ** 2
    noise = np.full(count, floor)
    if not n:
        return means, np.linalg.inv(prior), noise, np.zeros(count)
    x = np.stack([np.ones_like(seen), seen], axis=-1)
    left = values - np.einsum("cek,ck->ce", x, means)
    for _ in range(2):  # First with the noise that is assumed, then with that around the first fit.
        precision = prior + np.einsum("cek,cel->ckl", x, x) / noise[:, None, None]
        covariance = np.linalg.inv(precision)
        moved = np.einsum("ckl,cel,ce->ck", covariance, x, left) / noise[:, None]
        rest = left - np.einsum("cek,ck->ce", x, moved)
        squares = (rest * rest).sum(axis=1)
        evidence_noise = noise
        noise = (_NOISE_POINTS * floor + squares) / (_NOISE_POINTS + n)
    penalty = (moved * moved * np.stack([prior[:, 0, 0], prior[:, 1, 1]], axis=-1)).sum(axis=1)
    log_det = np.log(np.linalg.det(precision)) - np.log(prior[:, 0, 0]) - np.log(prior[:, 1, 1])
    evidence = -0.5 * (n * np.log(evidence_noise) + squares / evidence_noise + penalty + log_det)
    return means + moved, covariance, noise, evidence


def _normal(z: Numbers) -> Numbers:
    """The standard normal distribution, by its logistic approximation."""
    import numpy as np

    found: Numbers = 1.0 / (1.0 + np.exp(-np.clip(1.5976 * z + 0.070566 * z**3, -60.0, 60.0)))
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
