"""CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial", 2016), as values: what a generation draws and learns.

All draws come from the seed and the number of the generation, so a training that goes on after a kill draws the same.
Numbers are rounded: the last bits of a product of matrices depend on the processor and on how many threads computed it.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Column = NDArray[float64]


_DIGITS = 9


class Evolution(Struct, frozen=True):
    """Where the search is after so many generations; plain numbers, which a file can keep."""

    generation: int
    mean: list[float]
    sigma: float
    covariance: list[list[float]]
    path_sigma: list[float]
    path_covariance: list[float]


def initial(size: int, sigma: float) -> Evolution:
    """The start of the search: at zero, with the same spread in all directions."""
    identity = [[float(i == j) for j in range(size)] for i in range(size)]
    return Evolution(0, [0.0] * size, sigma, identity, [0.0] * size, [0.0] * size)


def candidates(at: Evolution, count: int, seed: int) -> Column:
    """[candidate, number]: what this generation tries; they come in pairs that mirror each other."""
    import numpy as np

    rng = np.random.default_rng([seed, at.generation])
    half = rng.standard_normal(((count + 1) // 2, len(at.mean)))
    drawn = np.concatenate([half, -half])[:count]
    found: Column = np.array(at.mean) + at.sigma * drawn @ _root(at)[0].T
    return found.round(_DIGITS)


def _root(at: Evolution) -> tuple[Any, Any]:
    import numpy as np

    values, vectors = np.linalg.eigh(np.array(at.covariance))
    values = np.sqrt(np.maximum(values, 1e-12))
    return vectors * values @ vectors.T, vectors / values @ vectors.T


def selected(at: Evolution, tried: Column, rewards: Column) -> Evolution:
    """The next generation: candidates with the highest rewards count most."""
    import numpy as np

    n, count = tried.shape[1], len(tried)
    best = tried[np.argsort(-rewards, kind="stable")[: count // 2]]
    weights = log(count / 2 + 0.5) - np.log(np.arange(1, len(best) + 1))
    weights /= weights.sum()
    mass = 1.0 / float((weights**2).sum())
    c_sigma = (mass + 2) / (n + mass + 5)
    d_sigma = 1 + 2 * max(0.0, sqrt((mass - 1) / (n + 1)) - 1) + c_sigma
    c_path = (4 + mass / n) / (n + 4 + 2 * mass / n)
    c_one = 2 / ((n + 1.3) ** 2 + mass)
    c_mass = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
    usual = sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))

    steps = (best - np.array(at.mean)) / at.sigma
    step = weights @ steps
    _root_of, inverse = _root(at)
    path_sigma = (1 - c_sigma) * np.array(at.path_sigma) + sqrt(c_sigma * (2 - c_sigma) * mass) * (inverse @ step)
    length = float(np.linalg.norm(path_sigma))
    moves = length / sqrt(1 - (1 - c_sigma) ** (2 * (at.generation + 1))) < (1.4 + 2 / (n + 1)) * usual
    path = (1 - c_path) * np.array(at.path_covariance) + moves * sqrt(c_path * (2 - c_path) * mass) * step
    covariance = (1 - c_one - c_mass + (1 - moves) * c_one * c_path * (2 - c_path)) * np.array(at.covariance)
    covariance += c_one * np.outer(path, path) + c_mass * (steps.T * weights) @ steps
    return Evolution(
        at.generation + 1,
        (np.array(at.mean) + at.sigma * step).round(_DIGITS).tolist(),
        round(at.sigma * exp(min(1.0, c_sigma / d_sigma * (length / usual - 1))), _DIGITS),
        ((covariance + covariance.T) / 2).round(_DIGITS).tolist(),
        path_sigma.round(_DIGITS).tolist(),
        path.round(_DIGITS).tolist(),
    )
