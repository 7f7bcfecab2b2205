"""What users write: an algorithm, and the blocks of data that it is computed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class TrainingError(Exception):
    """Training cannot go on; the message is one line, and names the block, array or file and what is wrong with it."""


@dataclass
class DataBlock:
    """A part of the input: what one call of `compute` is given."""

    name: str  # for messages, such as "ratings.txt, users 0-499"
    data: Mapping[str, Array]  # never changed
    # What belongs to this block and changes, such as the topics of its words. It is saved in checkpoints.
    state: dict[str, Array] = field(default_factory=dict)


class Algorithm:
    """Training as three methods; PULL, PUSH, checkpoints and hosts are the runtime's.

    In each iteration all workers see the same version of the model, and the sum of their updates makes the next one.
    `block` is a `DataBlock`; `params` has the model's arrays by name, and must not be changed.
    """

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        """The model at the start: arrays by name, the same on every host (draw from `rng`).

        Arrays are divided among hosts by their first axis.
        """
        raise NotImplementedError

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        """The updates that `block` asks for, by array, each of the shape of `params[name]`.

        It runs in a thread for each worker. What it returns may be reused in the next call in the same thread.
        """
        raise NotImplementedError

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        """What `block` adds to the number that training makes smaller."""
        raise NotImplementedError

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:  # noqa: ARG002
        """The rows of each array that `compute` needs for `block`: sorted row numbers, or None for all of them.

        `params[name]` and the update then have these rows only. The result must be the same at each call. Arrays that
        are left out are not pulled. By default every block needs every array, which is what an empty result means.
        """
        return {}

    def objective_needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The same for `objective` of `block`; by default what `compute` needs."""
        return self.needs(block)

    def apply(self, values: Mapping[str, Array], updates: Mapping[str, Array], iteration: int) -> None:  # noqa: ARG002
        """Change rows of the model in place, given the sum of all updates to them; by default, add it.

        `values` has the same rows of all arrays of one length, `updates` those that were updated. `iteration` is
        counted from 1. It is called for parts of the rows, in any order, so a row may depend on nothing but itself.
        """
        for name, update in updates.items():
            values[name][...] += update


def check_model(model: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a new model as they are kept; TrainingError if one cannot be kept or divided."""
    if not model:
        raise TrainingError("init() gave no arrays")
    kept = {}
    for name, values in model.items():
        if not name.isidentifier():  # Files are named after it.
            raise TrainingError(f"array '{name}' must be named by letters, digits and underscores")
        array = np.ascontiguousarray(values)
        if np.ndim(values) == 0 or not array.size:
            raise TrainingError(f"array '{name}' has shape {np.shape(values)}; it must have at least one row")
        if array.dtype.kind not in "fiu":
            raise TrainingError(f"array '{name}' has type {array.dtype}; it must be integer or floating point")
        if is_not_finite(array):
            raise TrainingError(f"array '{name}' has a NaN or an infinite value at the start")
        kept[name] = array
    return kept


def is_not_finite(values: Array) -> bool:
    """Whether there is a NaN or an infinite number among them."""
    if values.dtype.kind != "f":
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum takes a third of the time, and is finite almost always.
        return not np.isfinite(np.add.reduce(values, axis=None)) and not np.isfinite(values).all()


def content_of(array: Array) -> memoryview:
    """The bytes of a contiguous array, which are not copied."""
    whole: Any = array
    return memoryview(whole).cast("B") if array.size else memoryview(b"")
