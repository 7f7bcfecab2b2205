"""What linear models share: blocks of sparse rows, and steps by accelerated proximal gradients.

The steps are those of FISTA (Beck & Teboulle, 2009).

`NAME` is the point at which gradients are computed; `NAME_last` is the solution so far. Only servers need both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.column_spool import ColumnSpool
from hocket.runtimes.paramserver.file_blocks import FileBlocks, FileReading
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.readers import Examples, svmlight_parts

_POWER_STEPS = 30
_SETTLED = 1e-6  # A step that adds no larger share is the last.
_MARGIN = 1.05  # A power iteration comes from below.


class AcceleratedDescent(Algorithm):
    """Servers make the steps; blocks give their parts of the gradient."""

    def __init__(self, step: float, restart: int = 100) -> None:
        """`step` is at most one over the largest curvature.

        The momentum is dropped every `restart` iterations, because it may point the wrong way.
        """
        self.step, self.restart = step, restart

    def shrink(self, name: str, values: Array) -> Array:
        """What a step in array `name` came to, pulled to 0 by the penalty."""
        raise NotImplementedError

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """All arrays but those that only servers need."""
        return {name: keys for name, keys in self.rows(block).items() if not name.endswith("_last")}

    def objective_needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The arrays of the solution."""
        return {name: keys for name, keys in self.rows(block).items() if name.endswith("_last")}

    def rows(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The rows that a block has features for, of all arrays."""
        raise NotImplementedError

    def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:
        """A step against the gradient, the penalty, and the momentum of earlier steps."""
        since = (iteration - 1) % self.restart
        momentum = since / (since + 3)
        for name, gradient in updates.items():
            point, last = values[name], values[f"{name}_last"]
            new = self.shrink(name, point - self.step * gradient)
            point[...] = new + momentum * (new - last)
            last[...] = new


class ExamplesBlocks:
    """Blocks of about the same number of rows. Each knows its part of all rows, and of those of its iteration."""

    def __init__(
        self, path: Path, reading: FileReading, zero_based: bool, labels: Callable[[Examples], Array], blocks: int,
        batch: int, intercept: bool,
    ) -> None:  # fmt: skip
        """Read a file; `labels` gives those of some rows as they are kept, or refuses them."""
        self._name, self._batch = path.name, batch
        kinds = {"label": np.float64, "line": np.int32, "count": np.int64, "index": np.int32, "value": np.float64}
        self.columns = ColumnSpool(kinds, reading.folder)
        self.features, self._label_type = 1, np.dtype(np.float64)
        for part in svmlight_parts(path, reading, zero_based):
            kept = labels(part)
            self._label_type = kept.dtype
            self.columns.append(
                label=kept, line=part.lines, count=np.diff(part.starts), index=part.indices, value=part.values
            )
            self.features = max(self.features, int(part.indices.max(initial=0)) + 1)
        self._rows = self.columns.length("label")
        cuts = [self._rows * i // blocks for i in range(blocks + 1)]
        self._spans = [(low, high) for low, high in pairwise(cuts) if low < high]
        counts = [int(self.columns.rows("count", low, high).sum()) for low, high in self._spans]
        self._begins = np.concatenate([[0], np.cumsum(counts)])  # where the values of each block begin
        self._sharing = np.zeros(self.features)  # blocks that have a feature
        self.largest_label = max(float(part.max()) for (part,) in self.columns.parts("label"))
        self.curvature = self._scan_features(intercept)

    def all(self) -> FileBlocks:
        """All blocks."""
        return FileBlocks(range(len(self._spans)), self.block, self.columns)

    def block(self, i: int) -> DataBlock:
        """A block that knows which part of each feature's penalty is its own: all that have it take the same."""
        block = self._plain(i)
        share = 1 / self._sharing[block.data["features"]]
        return DataBlock(block.name, {**block.data, "penalty_share": share})

    def _plain(self, i: int) -> DataBlock:
        low, high = self._spans[i]
        begin, end = int(self._begins[i]), int(self._begins[i + 1])
        first = i // self._batch * self._batch
        together = self._spans[first : first + self._batch]
        keys, where = np.unique(self.columns.rows("index", begin, end), return_inverse=True)
        lines = [int(self.columns.rows("line", at, at + 1)[0]) for at in (low, high - 1)]
        return DataBlock(
            f"{self._name}, lines {lines[0]}-{lines[1]}",
            {
                "starts": np.concatenate([[0], np.cumsum(self.columns.rows("count", low, high))]).astype(np.int64),
                "features": keys.astype(np.int64), "feature": where.astype(np.int32),
                "value": np.array(self.columns.rows("value", begin, end)),
                "label": self.columns.rows("label", low, high).astype(self._label_type),
                "parts": np.array([(high - low) / self._rows, 1 / (together[-1][1] - together[0][0])]),
            },
        )  # fmt: skip

    def _scan_features(self, intercept: bool) -> float:
        """Which blocks share a feature, and an upper bound of the largest eigenvalue of XᵀX / rows, from those of the
        blocks."""
        total = 0.0
        for i in range(len(self._spans)):
            data = self._plain(i).data
            self._sharing[data["features"]] += 1
            start = np.random.default_rng(0).uniform(0.5, 1.5, len(data["features"]) + 1)
            total += largest_eigenvalue(
                data["starts"], data["feature"], data["value"], start, np.empty_like(start), intercept, _POWER_STEPS
            )
        return _MARGIN * total / self._rows


@Kernel
def largest_eigenvalue(
    starts: Array, feature: Array, value: Array, vector: Array, image: Array, intercept: bool, steps: int
) -> float:
    """Of XᵀX, by power iteration from `vector`; `image` is room for another one."""
    last = len(vector) - 1
    if not intercept:
        vector[last] = 0.0
    size = 0.0
    for step in range(steps + 1):
        before, squares = size, 0.0
        for f in range(len(vector)):
            squares += vector[f] * vector[f]
        size = np.sqrt(squares)
        if size == 0.0 or step == steps or (step > 1 and size - before <= _SETTLED * size):
            break
        for f in range(len(vector)):
            vector[f] /= size
            image[f] = 0.0
        for r in range(len(starts) - 1):
            product = vector[last] if intercept else 0.0
            for n in range(starts[r], starts[r + 1]):
                product += value[n] * vector[feature[n]]
            for n in range(starts[r], starts[r + 1]):
                image[feature[n]] += value[n] * product
            if intercept:
                image[last] += product
        vector, image = image, vector
    return size
