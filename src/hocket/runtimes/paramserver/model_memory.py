"""Where arrays of the model are: in memory, or in mapped files when even all input on disk leaves too little memory.

A mapped array is used as any other. Its pages come from disk when they are touched, and are given up when the process
has more than its budget: then the file has them, so the kernel swaps nothing.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterable

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array
from hocket.runtimes.paramserver.block_file import MIB, SpillError, nameless_file
from hocket.runtimes.paramserver.memory_budget import resident_bytes
from hocket.runtimes.paramserver.pull_plan import ArrayLayout

_LOOK_S = 0.005  # in which a process touches some ten MiB of pages at most
_FULL = 0.8  # of the budget: pages are given up
_COPY_BYTES = 4 << 20


class ModelMemory:
    """Gives arrays for the model, of which none has a content yet."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._files: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()
        self._listing = threading.Lock()  # None may be added while they are listed.
        self._budget, self._over = 0, threading.Event()
        self._watching: threading.Thread | None = None
        self.times_given_up = 0

    @property
    def is_on_disk(self) -> bool:
        """Whether new arrays are mapped files."""
        return self._folder is not None

    def spill(self, folder: str, budget_bytes: int) -> None:
        """From now on map files in this folder, and give up their pages when the process has more than the budget."""
        self._folder, self._budget = folder, budget_bytes
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="model on disk", daemon=True)
            self._watching.start()

    def empty(self, layout: ArrayLayout, rows: int) -> Array:
        """A new array with so many rows, whose values are not set. Raises SpillError if the disk has no room."""
        size = rows * layout.row_bytes
        if self._folder is None or not size:
            return layout.empty(rows)
        try:
            file, _ = nameless_file(self._folder, direct=False)
            try:
                os.posix_fallocate(file, 0, size)  # A disk that is full later would kill the process.
                mapped = mmap.mmap(file, size)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            said = f"{size / MIB:.1f} MiB of the model cannot be kept in folder '{self._folder}'"
            raise SpillError(f"{said}: {error.strerror}") from error
        with self._listing:
            self._files[mapped] = file
        weakref.finalize(mapped, os.close, file)
        return np.frombuffer(mapped, layout.dtype).reshape((rows, *layout.row_shape))

    def like(self, array: Array) -> Array:
        """An array of the same form."""
        return self.empty(ArrayLayout.of(array), len(array))

    def moved(self, array: Array) -> Array:
        """A copy of an array."""
        found = self.like(array)
        self.copy(found, array)
        return found

    def joined(self, layout: ArrayLayout, shards: Iterable[Array]) -> Array:
        """All rows of an array, one shard after the other."""
        found, first = self.empty(layout, layout.rows), 0
        for rows in shards:
            self.copy(found[first : first + len(rows)], rows)
            first += len(rows)
        return found

    def copy(self, target: Array, source: Array) -> None:
        """Copy rows."""
        for first in range(0, len(target), self._step(target)):
            behind = first + self._step(target)
            target[first:behind] = source[first:behind]
            self.keep_within_budget()

    def take(self, target: Array, source: Array, keys: Array) -> None:
        """Copy the rows with these numbers, each of which is there."""
        for first in range(0, len(keys), self._step(target)):
            behind = first + self._step(target)
            # Other modes copy all of it first.
            np.take(source, keys[first:behind], axis=0, out=target[first:behind], mode="clip")
            self.keep_within_budget()

    def keep_within_budget(self) -> None:
        """Give up pages if the process has too many. Call it after changing some MiB: the thread may be late."""
        if self.is_on_disk and resident_bytes() > _FULL * self._budget:
            self.give_up()

    def _step(self, rows: Array) -> int:
        return max(1, _COPY_BYTES // max(1, rows[:1].nbytes)) if self.is_on_disk else max(1, len(rows))

    def write_back(self) -> None:
        """Between iterations: let the disk have what has changed, and the kernel drop its copies."""
        for _mapped, file in self._listed():  # A file stays open while its map is in this list.
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """End the thread that gives up pages."""
        self._over.set()
        if self._watching is not None:
            self._watching.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.keep_within_budget()

    def give_up(self) -> None:
        """Drop all pages of mapped arrays from this process; what has changed goes to the files."""
        self.times_given_up += 1
        for mapped, _file in self._listed():
            mapped.madvise(mmap.MADV_DONTNEED)

    def _listed(self) -> list[tuple[mmap.mmap, int]]:
        with self._listing:
            return list(self._files.items())
