"""Tasks in the queue by themselves, in the order of their priorities: each is worked out as late as can be.

Jobs that lack tasks are many where a cluster is overloaded, and mostly somebody else takes what becomes free: then it
is enough to know that none of them goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.view import JobView
from hocket.policies.mlfs.kept import Needs


class Single(Struct, frozen=True, eq=False):
    """A task in the queue by itself: its job's other tasks have a place, or it comes off an overloaded server."""

    priority: float  # or what it is not above, until it is worked out
    view: JobView
    k: int
    needs: Needs
    gpu: int = -1  # that it comes from; -1 if it waits
    load: float = 0.0  # of that GPU before it left


class Singles:
    """A line of single tasks. `ranked` works a priority out; None: the task does not stand in line any more."""

    __slots__ = ("_heap", "_ranked")

    def __init__(self, ranked: Callable[[Single], float | None]) -> None:
        self._ranked = ranked
        self._heap: list[tuple[float, bool, int, int, Single]] = []  # of equals, those go first that are not worked out

    def add(self, single: Single, is_ranked: bool) -> None:
        """Have it stand in line."""
        heappush(self._heap, (-single.priority, is_ranked, single.view.number, single.k, single))

    def next(self, least: float = -inf) -> Single | None:
        """The first in line leaves it, if its priority is no lower than this."""
        heap = self._heap
        while heap and -heap[0][0] >= least:
            _value, is_ranked, number, k, single = heap[0]
            if is_ranked:
                heappop(heap)
                return single
            priority = self._ranked(single)
            if priority is None:
                heappop(heap)
            else:
                heapreplace(heap, (-priority, True, number, k, replace(single, priority=priority)))
        return None
