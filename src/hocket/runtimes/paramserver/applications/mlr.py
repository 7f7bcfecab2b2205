"""Multinomial logistic regression with an L2 penalty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, DataBlock, TrainingError
from hocket.runtimes.paramserver.applications.linear_model import AcceleratedDescent, ExamplesBlocks
from hocket.runtimes.paramserver.file_blocks import FileBlocks, FileReading, ReadInput
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.readers import Examples


class MultinomialRegression(AcceleratedDescent):
    """Classes by the largest of as many linear functions; their weights are kept small by a penalty of `l2` / 2."""

    def __init__(self, features: int, classes: int, step: float, l2: float = 1e-3) -> None:
        super().__init__(step)
        self.features, self.classes, self.l2 = features, classes, l2

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        """All classes are equally likely."""
        shapes = {"weights": (self.features, self.classes), "intercept": (1, self.classes)}
        return {f"{name}{end}": np.zeros(shape) for name, shape in shapes.items() for end in ("", "_last")}

    def rows(self, block: DataBlock) -> Mapping[str, Array | None]:
        """Weights of the features that are in the block."""
        keys = block.data["features"]
        return {"weights": keys, "weights_last": keys, "intercept": None, "intercept_last": None}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        """The block's part of the gradient of the mean loss."""
        data = block.data
        gradient, of_intercept = np.zeros_like(params["weights"]), np.zeros_like(params["intercept"])
        add_gradient(
            data["starts"], data["feature"], data["value"], data["label"], params["weights"], params["intercept"],
            gradient, of_intercept, data["parts"][1], np.empty(self.classes),
        )  # fmt: skip
        return {"weights": gradient, "intercept": of_intercept}

    def shrink(self, name: str, values: Array) -> Array:
        """The intercept is free."""
        return values if name == "intercept" else values / (1 + self.step * self.l2)

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        """The block's part of the mean loss, and of the penalty that its features have."""
        data, weights = block.data, params["weights_last"]
        loss = log_loss(
            data["starts"], data["feature"], data["value"], data["label"], weights, params["intercept_last"],
            np.empty(self.classes),
        )  # fmt: skip
        part = data["parts"][0]
        penalty = self.l2 / 2 * float((np.square(weights).sum(axis=1) * data["penalty_share"]).sum())
        return float(loss) * float(part) / len(data["label"]) + penalty


def load(
    path: Path, blocks: int, batch: int, classes: int | None = None, zero_based: bool = False,
    reading: FileReading | None = None, **options: Any,
) -> tuple[MultinomialRegression, FileBlocks]:  # fmt: skip
    """The algorithm and its blocks for an svmlight file; labels are 0 to `classes` - 1."""
    options.pop("seed", None)
    reading = reading or FileReading()

    def read() -> ReadInput:
        made = ExamplesBlocks(
            path, reading, zero_based, lambda part: checked_labels(path, part, classes), blocks, batch, intercept=True
        )
        count = classes or int(made.largest_label) + 1
        step = 1 / max(made.curvature / 2, 1e-12)
        return ReadInput({"features": made.features, "classes": count, "step": step}, made.all())

    key = {"application": "mlr", "blocks": blocks, "batch": batch, "classes": classes, "zero_based": zero_based}
    found = reading.blocks(path, key, read)
    return MultinomialRegression(**found.facts, **options), found.blocks


def checked_labels(path: Path, examples: Examples, classes: int | None) -> Array:
    """Labels as whole numbers; TrainingError if one is none, or is not below the number of classes."""
    most = (classes or 1 << 20) - 1
    bad = (examples.labels != np.floor(examples.labels)) | (examples.labels < 0) | (examples.labels > most)
    if (wrong := np.flatnonzero(bad)).size:
        line, label = examples.lines[wrong[0]], examples.labels[wrong[0]]
        raise TrainingError(f"{path}, line {line}, field 1: label {label:g} is not a whole number within 0 and {most}")
    return examples.labels.astype(np.int32)


@Kernel
def add_gradient(
    starts: Array, feature: Array, value: Array, label: Array, weights: Array, bias: Array, gradient: Array,
    of_bias: Array, part: float, likely: Array,
) -> None:  # fmt: skip
    """Scores are computed here and in `log_loss` alike: as a function of its own that takes half as long again.

    `likely` is room for a number a class.
    """
    classes = len(likely)
    for r in range(len(label)):
        for c in range(classes):
            likely[c] = bias[0, c]
        for n in range(starts[r], starts[r + 1]):
            x, f = value[n], feature[n]
            for c in range(classes):
                likely[c] += x * weights[f, c]
        top, total = likely[0], 0.0
        for c in range(1, classes):
            top = max(top, likely[c])
        for c in range(classes):
            likely[c] = np.exp(likely[c] - top)
            total += likely[c]
        for c in range(classes):
            likely[c] = part * (likely[c] / total - (1.0 if c == label[r] else 0.0))
            of_bias[0, c] += likely[c]
        for n in range(starts[r], starts[r + 1]):
            x, f = value[n], feature[n]
            for c in range(classes):
                gradient[f, c] += x * likely[c]


@Kernel
def log_loss(
    starts: Array, feature: Array, value: Array, label: Array, weights: Array, bias: Array, scores: Array
) -> float:
    """`scores` is room for a number a class."""
    classes, loss = len(scores), 0.0
    for r in range(len(label)):
        for c in range(classes):
            scores[c] = bias[0, c]
        for n in range(starts[r], starts[r + 1]):
            x, f = value[n], feature[n]
            for c in range(classes):
                scores[c] += x * weights[f, c]
        top, total = scores[0], 0.0
        for c in range(1, classes):
            top = max(top, scores[c])
        for c in range(classes):
            total += np.exp(scores[c] - top)
        loss += np.log(total) + top - scores[label[r]]
    return loss
