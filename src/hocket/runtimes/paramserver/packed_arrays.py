"""Arrays in one buffer, as they lie in memory and on disk: each begins with a page of its own."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array

PAGE = 4096  # O_DIRECT reads and writes whole pages, to and from memory that begins with one.
_WORDS = PAGE // 4
_WEIGHTS = np.random.default_rng(0).integers(0, 2**63, _WORDS, dtype=np.uint64)  # of the words of a page


class _Place(NamedTuple):
    """Where an array is within its buffer."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class ArrayPlaces:
    """Where each of some arrays lies."""

    places: tuple[_Place, ...] = ()
    size: int = 0  # of all together, in whole pages

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> ArrayPlaces:
        """One array after the other. Raises ValueError for what cannot be kept on disk."""
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"'{name}' is {type(array).__name__}; it must be an array to be kept on disk")
            if array.dtype.hasobject:
                said = f"array '{name}' has Python objects (dtype {array.dtype})"
                raise ValueError(f"{said}, which cannot be kept on disk")
        return cls.of_forms((name, array.shape, array.dtype) for name, array in arrays.items())

    @classmethod
    def of_forms(cls, forms: Iterable[tuple[str, tuple[int, ...], Any]]) -> ArrayPlaces:
        """The same, of arrays with these names, shapes and types."""
        places, end = [], 0
        for name, shape, dtype in forms:
            place = _Place(name, end, shape, np.dtype(dtype))
            places.append(place)
            end += whole_pages(math.prod(shape) * place.dtype.itemsize)
        return cls(tuple(places), end)

    def put(self, arrays: Mapping[str, Array], buffer: mmap.mmap, offset: int = 0) -> None:
        """Copy arrays to their places; those that are there already stay."""
        for name, there in self.arrays(buffer, offset).items():
            if not _is_same(there, arrays[name]):
                there[...] = arrays[name]

    def arrays(self, buffer: mmap.mmap, offset: int = 0) -> dict[str, Array]:
        """The arrays that lie in a buffer."""
        found = {}
        for name, begin, shape, dtype in self.places:
            count = int(np.prod(shape, dtype=np.int64))
            found[name] = np.frombuffer(buffer, dtype, count, offset + begin).reshape(shape)
        return found


def read_only(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The same arrays, protected."""
    found = {name: array.view() for name, array in arrays.items()}
    for array in found.values():
        array.flags.writeable = False
    return found


def checksum(buffer: mmap.mmap, offset: int, size: int) -> int:
    """Of whole pages: words of 32 bits, each times the weight of its place, in a sum of 64 bits.

    It tells changed words, words and pages that have changed places, and those that are lost: a state is written only
    if this differs, and a plain sum is the same for values in another order. CRC-32 takes a third longer.
    """
    words = np.frombuffer(buffer, np.uint32, size // 4, offset).reshape(-1, _WORDS)
    sums = np.einsum("ij,j->i", words, _WEIGHTS, dtype=np.uint64)
    return int((sums * (2 * np.arange(len(sums), dtype=np.uint64) + np.uint64(1))).sum())


def whole_pages(size: int) -> int:
    """A size in bytes, rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def _is_same(there: Array, given: Array) -> bool:
    """Whether two arrays are one and the same memory, read in the same way."""
    return (
        there.__array_interface__["data"][0] == given.__array_interface__["data"][0]
        and there.strides == given.strides
        and there.dtype == given.dtype
    )
