"""The workers of a host: threads that compute blocks. Their results are taken in the order of the blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_CHUNK_BYTES = 1 << 20  # that a worker changes at a time: it stays in a core's cache


class _Order:
    """Which items threads have begun with, and whose results were taken."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun = self.taken = 0
        self.broken = False

    def next(self, count: int) -> int | None:
        """The item to begin with; None if there is none."""
        with self.changed:
            if self.broken or self.begun == count:
                return None
            self.begun += 1
            return self.begun - 1

    def wait_for(self, item: int) -> bool:
        """Wait until the results of all earlier items were taken; False if a worker failed."""
        with self.changed:
            while self.taken < item and not self.broken:
                self.changed.wait()
            return not self.broken

    def advance(self, broken: bool) -> None:
        """A result was taken, or there is none."""
        with self.changed:
            self.taken += not broken
            self.broken = self.broken or broken
            self.changed.notify_all()


def _serve(
    order: _Order, items: Sequence[Item], work: Callable[[Item], Result], take: Callable[[Item, Result], None]
) -> None:
    while (place := order.next(len(items))) is not None:
        broken = True
        try:
            result = work(items[place])
            if not order.wait_for(place):
                return
            take(items[place], result)
            broken = False
        finally:
            order.advance(broken)


class WorkerPool:
    """Threads that work on blocks, at the same time if kernels release the GIL, as NumPy and numba (`nogil`) do."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._threads = ThreadPoolExecutor(workers, "worker")

    def each(self, items: Sequence[Item], work: Callable[[Item], Result], take: Callable[[Item, Result], None]) -> None:
        """Work on all items, and take each result when those of all earlier items were taken.

        So sums are the same to the last bit, whatever the number of workers. An exception ends it.
        """
        if self.workers == 1 or len(items) == 1:
            for item in items:
                take(item, work(item))
            return
        order = _Order()
        threads = range(min(self.workers, len(items)))
        try:
            running = [self._threads.submit(_serve, order, items, work, take) for _ in threads]
            errors = [error for future in running if (error := future.exception()) is not None]
        except BaseException:  # An interrupt: the threads begin with nothing more.
            order.advance(broken=True)
            raise
        if errors:
            raise errors[0]

    def over_rows(self, rows: int, row_bytes: int, work: Callable[[int, int], None]) -> None:
        """Call `work(first, behind)` for all rows, each worker with a part of them, a chunk at a time."""
        step = max(1, _CHUNK_BYTES // max(row_bytes, 1))
        parts = 1 if rows <= step else self.workers

        def serve(part: int) -> None:
            behind = rows * (part + 1) // parts
            for first in range(rows * part // parts, behind, step):
                work(first, min(first + step, behind))

        if parts == 1:
            serve(0)
            return
        for future in [self._threads.submit(serve, part) for part in range(parts)]:
            future.result()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
