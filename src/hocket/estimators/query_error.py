"""How much of its data a query must read until its error is small enough.

After a share f of the data, the half width of an interval is about c · √((1 - f) / f): it falls with the root of the
rows read, and is nothing when all are read. Each answer says what c was; they scatter, the less the more is read. So c
is lognormal around their mean, and the share at which the error is below e, c² / (c² + e²), follows. A query answers
when a batch has ended, and not before.
`python -m benchmarks.rotary` measures how often its 80 % intervals hold the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, exp, isfinite, log, sqrt

from hocket.model.curve import Curve, Estimate, Point

_FIRST_SD = 0.6  # of the logarithm of c after one answer …
_LEAST_SD = 0.15  # … and after many: batches are not alike
_SHARES = (0.02, 0.04, 0.08, 0.12, 0.18, 0.25, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
_ALIKE = 0.9  # Past queries that are so similar answer at the same shares.
_BEFORE = 1e-6  # of a batch, that is not enough
_UNKNOWN = Estimate(log(0.3), 1.5)  # a query of which nothing is known: at half of the data its error is about 30 %


def constant(answers: Sequence[tuple[float, float]], past: Estimate | None = None) -> Estimate:
    """log c and its uncertainty, from (share of the data read, error) of answers, and of past queries as `past`.

    An answer that has read all, or has no error, says nothing about c. An error of 1 says that c is at least so large.
    """
    known = [(f, e) for f, e in answers if 0 < f < 1 and isfinite(e) and 0 < e <= 1]
    prior = past or _UNKNOWN
    if not known:
        return prior
    logs = [log(e) - 0.5 * log((1.0 - f) / f) for f, e in known]
    weights = [2.0**n for n in range(len(logs))]  # Later answers contain the rows of earlier ones.
    mean = sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)
    spread = max(_LEAST_SD, _FIRST_SD / len(logs))
    # The past counts as one more statement, as certain as it is.
    own, old = spread**-2, prior.sd**-2
    return Estimate((own * mean + old * prior.mean) / (own + old), max(_LEAST_SD, (own + old) ** -0.5))


def batch_ends(read: float, past: Sequence[tuple[float, Sequence[float]]]) -> tuple[float, ...]:
    """The shares of the data, beyond that which was read, at which a query will answer; none if that is not known.

    `past` are past queries: similarity, and the shares at which they answered. As a rule a batch is as large as all
    before it.
    """
    alike, shares = max(past, key=lambda p: p[0], default=(0.0, ()))
    known = shares if alike >= _ALIKE else ()
    last = max([read, *known])  # It may have stopped there, as its goal was met.
    if last <= 0:
        return ()
    ends = [f for f in known if read + 1e-9 < f < 1.0]
    while (last := 2.0 * last) < 1.0:
        ends.append(last)
    return (*ends, 1.0)


def chances(log_c: Estimate, error: float, read: float, ends: Sequence[float] = ()) -> Curve | None:
    """Share of the data → the probability that the error is at most `error` by then; `read` was not enough.

    It rises at the `ends` of batches, or all along if these are not known. A query that has read all its data has no
    error. None if it has read all.
    """
    if read >= 1:
        return None
    read = max(read, 0.0)
    before = _holds(log_c, error, read) if read > 0 else 0.0
    points = [Point(read, 0.0)]
    for f in ends or _SHARES:
        if read + 1e-9 < f < 1.0 and error > 0:
            # It was not there at `read`: what is left is shared out among what comes.
            sure = round(max(0.0, _holds(log_c, error, f) - before) / max(1.0 - before, 1e-9), 6)
            points += [Point(f * (1.0 - _BEFORE), points[-1].mean), Point(f, sure)] if ends else [Point(f, sure)]
    if ends:
        points.append(Point(1.0 - _BEFORE, points[-1].mean))
    return Curve((*points, Point(1.0, 1.0)))


def _holds(log_c: Estimate, error: float, share: float) -> float:
    """P(c ≤ error / √((1 - f) / f))."""
    if error <= 0:
        return 0.0
    most = log(error) - 0.5 * log((1.0 - share) / share)
    return 0.5 * (1.0 + erf((most - log_c.mean) / (max(log_c.sd, 1e-6) * sqrt(2.0))))


def share_for(c: float, error: float) -> float:
    """The share of the data at which a query of this c has this error."""
    return c * c / (c * c + error * error) if error > 0 else 1.0


def from_past(constants: Sequence[tuple[float, float]]) -> Estimate | None:
    """log c of a query that has not answered yet, from (similarity, log c) of past ones; None without any."""
    weight = sum(alike for alike, _x in constants)
    if not weight:
        return None
    mean = sum(alike * x for alike, x in constants) / weight
    spread = sum(alike * (x - mean) ** 2 for alike, x in constants) / weight
    alike = weight / len(constants)
    return Estimate(mean, sqrt(spread + (_FIRST_SD * alike + 1.5 * (1.0 - alike)) ** 2))


def error_after(c: float, share: float) -> float:
    """The error of a query of this c when it has read this share of its data."""
    return min(1.0, c * sqrt((1.0 - share) / share)) if 0 < share < 1 else 1.0 - float(share >= 1)


def in_words(log_c: Estimate) -> str:
    """The error at half of the data, which is c itself."""
    return f"{exp(log_c.mean):.0%} at half of the data"
