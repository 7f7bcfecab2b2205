"""Columns of numbers that come a part at a time: kept in memory, or in files without a name where that has no room."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError, content_of
from hocket.runtimes.paramserver.block_file import nameless_file

ROWS_AT_ONCE = 1 << 18


class ColumnSpool:
    """Columns by name, each of numbers of one type. They need not have the same length."""

    def __init__(self, types: Mapping[str, Any], folder: str | None = None) -> None:
        """`folder` is where the files are; None: in memory."""
        self._types = {name: np.dtype(of) for name, of in types.items()}
        self._folder = folder
        self._lengths = dict.fromkeys(types, 0)
        self._parts: dict[str, list[Array]] = {name: [] for name in types}
        self._files: dict[str, int] = {}
        if folder is not None:
            try:
                for name in types:
                    self._files[name] = nameless_file(folder, direct=False)[0]
            except OSError as error:
                raise TrainingError(f"folder '{folder}' cannot be used for spilling: {error.strerror}") from error

    def length(self, name: str) -> int:
        """Rows of a column."""
        return self._lengths[name]

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        return sum(count * self._types[name].itemsize for name, count in self._lengths.items())

    def append(self, **columns: Array) -> None:
        """Add rows at the end."""
        for name, rows in columns.items():
            if self._folder is None:
                self._parts[name].append(np.ascontiguousarray(rows, self._types[name]))
            else:
                self._write(name, self._lengths[name], rows)
            self._lengths[name] += len(rows)

    def rows(self, name: str, first: int, behind: int) -> Array:
        """Some rows of a column."""
        if self._folder is None:
            if len(self._parts[name]) != 1:
                self._parts[name] = [np.concatenate([np.empty(0, self._types[name]), *self._parts[name]])]
            return self._parts[name][0][first:behind]
        found = np.empty(behind - first, self._types[name])
        view, done, place = content_of(found), 0, first * found.itemsize
        while done < len(view):
            count = os.preadv(self._files[name], [view[done:]], place + done)
            if not count:
                raise TrainingError(f"a file in folder '{self._folder}' has become shorter")
            done += count
        return found

    def parts(self, *names: str) -> Iterator[list[Array]]:
        """Columns of the same length, some rows at a time; of how many does not depend on how they came."""
        for first in range(0, self._lengths[names[0]], ROWS_AT_ONCE):
            behind = min(first + ROWS_AT_ONCE, self._lengths[names[0]])
            yield [self.rows(name, first, behind) for name in names]

    def divided(self, key: str, block_of: Callable[[Array], Array], firsts: Array) -> ColumnSpool:
        """The same rows by block: each block's together, in their order. `firsts` are the first rows of blocks."""
        names, at = list(self._types), np.array(firsts, np.int64)
        target = ColumnSpool(self._types, self._folder)
        target._lengths = dict(self._lengths)
        if self._folder is None:
            target._parts = {name: [np.empty(count, self._types[name])] for name, count in self._lengths.items()}
        for columns in self.parts(*names):
            rows = dict(zip(names, columns, strict=True))
            blocks = block_of(rows[key])
            if len(blocks) and (np.diff(blocks) < 0).any():
                order = np.argsort(blocks, kind="stable")
                rows = {name: column[order] for name, column in rows.items()}
                blocks = blocks[order]
            starts = np.flatnonzero(np.diff(blocks, prepend=-1))
            for begin, end in zip(starts, np.append(starts[1:], len(blocks)), strict=True):
                block = blocks[begin]
                for name, column in rows.items():
                    target._write(name, int(at[block]), column[begin:end])
                at[block] += end - begin
        return target

    def _write(self, name: str, first: int, rows: Array) -> None:
        if self._folder is None:
            self._parts[name][0][first : first + len(rows)] = rows
            return
        view = content_of(np.ascontiguousarray(rows, self._types[name]))
        done, place = 0, first * self._types[name].itemsize
        try:
            while done < len(view):
                done += os.pwritev(self._files[name], [view[done:]], place + done)
        except OSError as error:
            raise TrainingError(f"input cannot be kept in folder '{self._folder}': {error.strerror}") from error

    def close(self) -> None:
        """Give back memory and disk."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._parts = {name: [] for name in self._types}


class KeyCounts:
    """How often each key came, and with how much weight; keys may be few and far between."""

    def __init__(self) -> None:
        self.keys, self.counts = np.empty(0, np.int64), np.empty(0, np.int64)
        self.weights = np.empty(0, np.int64)
        self._new: list[tuple[Array, Array, Array]] = []
        self._new_keys = 0

    def add(self, keys: Array, weights: Array | None = None) -> None:
        """Some more; without weights each has 1."""
        found, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
        sums = counts
        if weights is not None:
            sums = np.zeros(len(found), np.int64)
            np.add.at(sums, where, weights)
        self._new.append((found.astype(np.int64), counts, sums))
        self._new_keys += len(found)
        if self._new_keys > len(self.keys):  # so that what is known already is not sorted again each time
            self.merge()

    def merge(self) -> None:
        """Make `keys`, which are sorted, `counts` and `weights` complete."""
        parts = [(self.keys, self.counts, self.weights), *self._new]
        keys, counts, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.keys, where = np.unique(keys, return_inverse=True)
        self.counts, self.weights = np.zeros(len(self.keys), np.int64), np.zeros(len(self.keys), np.int64)
        np.add.at(self.counts, where, counts)
        np.add.at(self.weights, where, weights)
        self._new, self._new_keys = [], 0
