"""Linear regression with an L1 penalty, which makes most weights 0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, DataBlock
from hocket.runtimes.paramserver.applications.linear_model import AcceleratedDescent, ExamplesBlocks
from hocket.runtimes.paramserver.file_blocks import FileBlocks, FileReading, ReadInput
from hocket.runtimes.paramserver.kernel import Kernel


class LassoRegression(AcceleratedDescent):
    """Half the mean squared error, and `l1` times the sum of the weights' absolute values. There is no intercept."""

    def __init__(self, features: int, step: float, l1: float = 0.01) -> None:
        super().__init__(step)
        self.features, self.l1 = features, l1

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        """All weights are 0."""
        return {"weights": np.zeros(self.features), "weights_last": np.zeros(self.features)}

    def rows(self, block: DataBlock) -> Mapping[str, Array | None]:
        """Weights of the features that are in the block."""
        return {"weights": block.data["features"], "weights_last": block.data["features"]}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        """The block's part of the gradient of the mean squared error."""
        data, gradient = block.data, np.zeros_like(params["weights"])
        add_residuals(
            data["starts"], data["feature"], data["value"], data["label"], params["weights"], gradient, data["parts"][1]
        )
        return {"weights": gradient}

    def shrink(self, name: str, values: Array) -> Array:  # noqa: ARG002
        """Soft thresholding."""
        return np.sign(values) * np.maximum(np.abs(values) - self.step * self.l1, 0)

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        """The block's part of the mean squared error, and of the penalty that its features have."""
        data, weights = block.data, params["weights_last"]
        squares = squared_residuals(data["starts"], data["feature"], data["value"], data["label"], weights)
        error = float(squares) / 2 * float(data["parts"][0]) / len(data["label"])
        return error + self.l1 * float((np.abs(weights) * data["penalty_share"]).sum())


def load(
    path: Path, blocks: int, batch: int, zero_based: bool = False, reading: FileReading | None = None, **options: Any
) -> tuple[LassoRegression, FileBlocks]:
    """The algorithm and its blocks for an svmlight file; labels are any numbers."""
    options.pop("seed", None)
    reading = reading or FileReading()

    def read() -> ReadInput:
        made = ExamplesBlocks(path, reading, zero_based, lambda part: part.labels, blocks, batch, intercept=False)
        return ReadInput({"features": made.features, "step": 1 / max(made.curvature, 1e-12)}, made.all())

    key = {"application": "lasso", "blocks": blocks, "batch": batch, "zero_based": zero_based}
    found = reading.blocks(path, key, read)
    return LassoRegression(**found.facts, **options), found.blocks


@Kernel
def add_residuals(
    starts: Array, feature: Array, value: Array, label: Array, weights: Array, gradient: Array, part: float
) -> None:
    """Add the gradient of half the squared errors, times `part`, to `gradient`."""
    for r in range(len(label)):
        residual = -label[r]
        for n in range(starts[r], starts[r + 1]):
            residual += value[n] * weights[feature[n]]
        residual *= part
        for n in range(starts[r], starts[r + 1]):
            gradient[feature[n]] += value[n] * residual


@Kernel
def squared_residuals(starts: Array, feature: Array, value: Array, label: Array, weights: Array) -> float:
    """Their sum."""
    total = 0.0
    for r in range(len(label)):
        residual = -label[r]
        for n in range(starts[r], starts[r + 1]):
            residual += value[n] * weights[feature[n]]
        total += residual * residual
    return total
