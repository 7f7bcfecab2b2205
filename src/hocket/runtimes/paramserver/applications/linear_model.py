"""What linear models share: blocks of sparse rows, and steps by accelerated proximal gradients.

The steps are those of FISTA (Beck & Teboulle, 2009).

`NAME` is the point at which gradients are computed; `NAME_last` is the solution so far. Only servers need both.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.kernel_compiler import compiled
from hocket.runtimes.paramserver.readers import Examples

_POWER_STEPS = 30
_MARGIN = 1.05  # A power iteration comes from below.


class AcceleratedDescent(Algorithm):
    """Servers make the steps; blocks give their parts of the gradient."""

    def __init__(self, step: float, restart: int = 100) -> None:
        """`step` is at most one over the largest curvature.

        The pace that was gained is dropped every `restart` iterations, for it may go the wrong way.
        """
        self.step, self.restart = step, restart

    def shrink(self, name: str, values: Array) -> Array:
        """What a step in array `name` came to, pulled to 0 by the penalty."""
        raise NotImplementedError

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """All of it, but not what only servers need."""
        return {name: keys for name, keys in self.rows(block).items() if not name.endswith("_last")}

    def objective_needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The solution."""
        return {name: keys for name, keys in self.rows(block).items() if name.endswith("_last")}

    def rows(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The rows that a block has features for, of all arrays."""
        raise NotImplementedError

    def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:
        """A step against the gradient, the penalty, and the pace of earlier steps."""
        since = (iteration - 1) % self.restart
        pace = since / (since + 3)
        for name, gradient in updates.items():
            point, last = values[name], values[f"{name}_last"]
            new = self.shrink(name, point - self.step * gradient)
            point[...] = new + pace * (new - last)
            last[...] = new


def examples_blocks(examples: Examples, labels: Array, blocks: int, batch: int, name: str) -> list[DataBlock]:
    """Blocks of about the same number of rows. Each knows its part of all rows, and of those of its iteration."""
    rows = len(labels)
    cuts = [rows * i // blocks for i in range(blocks + 1)]
    spans = [(low, high) for low, high in pairwise(cuts) if low < high]
    made = []
    for i, (low, high) in enumerate(spans):
        first = i // batch * batch
        together = spans[first : first + batch]
        begin, end = examples.starts[low], examples.starts[high]
        keys, where = np.unique(examples.indices[begin:end], return_inverse=True)
        made.append(
            DataBlock(
                f"{name}, lines {examples.lines[low]}-{examples.lines[high - 1]}",
                {
                    "starts": examples.starts[low : high + 1] - begin, "features": keys.astype(np.int64),
                    "feature": where.astype(np.int32), "value": examples.values[begin:end].astype(np.float64),
                    "label": labels[low:high],
                    "parts": np.array([(high - low) / rows, 1 / (together[-1][1] - together[0][0])]),
                },
            )
        )  # fmt: skip
    return made


def curvature(blocks: list[DataBlock], intercept: bool) -> float:
    """An upper bound of the largest eigenvalue of XᵀX / rows, from those of the blocks."""
    total = rows = 0.0
    for block in blocks:
        data = block.data
        start = np.random.default_rng(0).uniform(0.5, 1.5, len(data["features"]) + 1)
        total += largest_eigenvalue(data["starts"], data["feature"], data["value"], start, intercept, _POWER_STEPS)
        rows += len(data["label"])
    return _MARGIN * total / rows


def _largest_eigenvalue(
    starts: Array, feature: Array, value: Array, vector: Array, intercept: bool, steps: int
) -> float:
    last = len(vector) - 1
    if not intercept:
        vector[last] = 0.0
    size = 0.0
    for _ in range(steps):
        size = np.sqrt((vector * vector).sum())
        if size == 0.0:
            return 0.0
        vector /= size
        image = np.zeros_like(vector)
        for r in range(len(starts) - 1):
            product = vector[last] if intercept else 0.0
            for n in range(starts[r], starts[r + 1]):
                product += value[n] * vector[feature[n]]
            for n in range(starts[r], starts[r + 1]):
                image[feature[n]] += value[n] * product
            if intercept:
                image[last] += product
        vector[:] = image
    return float(np.sqrt((vector * vector).sum()))


largest_eigenvalue = compiled(_largest_eigenvalue)
