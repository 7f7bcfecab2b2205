"""Which rows a host pulls for the blocks of an iteration, and where each block finds its own among them: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError


@dataclass(frozen=True)
class ArrayLayout:
    """An array of the model as all hosts know it."""

    rows: int
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Array) -> ArrayLayout:
        """The layout of an array."""
        return cls(len(array), array.shape[1:], array.dtype)

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize

    def empty(self, rows: int) -> Array:
        """A new array with so many rows, whose values are not set."""
        return np.empty((rows, *self.row_shape), self.dtype)


@dataclass(frozen=True, eq=False)
class PulledRows:
    """The rows of one array that the blocks of an iteration need together; equal to itself only."""

    keys: Array | None  # sorted; None: all rows
    places: Mapping[int, Array]  # block → where its rows are among them; without those that need all of them


Plan = Mapping[str, PulledRows]


def plan_of(needs: Mapping[int, Mapping[str, Array | None]], layouts: Mapping[str, ArrayLayout]) -> Plan:
    """What to pull, by array, given what each block needs; TrainingError if a block needs what is not there."""
    named = {block: checked_needs(block, of, layouts) for block, of in needs.items()}
    plan = {}
    for name in layouts:
        keys = {block: of[name] for block, of in named.items() if name in of}
        if not keys:
            continue
        some = {block: found for block, found in keys.items() if found is not None}
        if len(some) < len(keys):  # One of them needs all rows.
            plan[name] = PulledRows(None, some)
            continue
        union = union_of(list(some.values()))
        places = {block: np.searchsorted(union, found) for block, found in some.items() if len(found) < len(union)}
        plan[name] = PulledRows(union, places)
    return plan


def checked_needs(
    block: int, needs: Mapping[str, Array | None], layouts: Mapping[str, ArrayLayout]
) -> dict[str, Array | None]:
    """What a block needs, each array by name; a block that names none needs all of them."""
    if not needs:
        return dict.fromkeys(layouts)
    found: dict[str, Array | None] = {}
    for name, keys in needs.items():
        if name not in layouts:
            raise TrainingError(f"block {block} needs array '{name}'; the model has {', '.join(layouts)}")
        if keys is None:
            found[name] = None
            continue
        rows = np.asarray(keys)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TrainingError(f"block {block} needs rows of '{name}' by a list of row numbers, not {rows.dtype}")
        rows = rows.astype(np.int64, copy=False)
        if len(rows) and (rows[0] < 0 or rows[-1] >= layouts[name].rows or not (np.diff(rows) > 0).all()):
            raise TrainingError(
                f"block {block} needs rows of '{name}' that are not sorted, come twice, or are not within 0 and "
                f"{layouts[name].rows - 1}"
            )
        found[name] = rows
    return found


def union_of(keys: Sequence[Array]) -> Array:
    """All numbers in them, sorted; each of them has a number once."""
    if len(keys) == 1:
        return keys[0]
    together = np.sort(np.concatenate(keys))  # `np.unique` imports much.
    is_first = np.ones(len(together), bool)
    np.not_equal(together[1:], together[:-1], out=is_first[1:])
    return together[is_first]
