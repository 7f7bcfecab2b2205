"""What a policy keeps from one decision to the next, so that it looks only at what changed in between.

The contract: a cache makes decisions faster and never different. Its holder brings it up to date with the snapshot
before it reads anything, and starts over when it cannot tell what changed. `tests/laws/test_decision_cache.py` clears
the cache at random moments and compares the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_MOST = 8
_kept: dict[Hashable, Any] = {}  # those that are not borrowed; the latest last


@contextmanager
def borrow(key: Hashable, make: Callable[[], T]) -> Iterator[T]:
    """The object kept under this key, or a new one. It is put back at the end, unless an exception ends the block.

    A borrowed object is out of reach for others, so decisions in several threads never share one.
    """
    found = _kept.pop(key, None)
    if found is None:
        found = make()
    yield found
    _kept[key] = found
    for oldest in list(_kept)[:-_MOST]:  # A copy: other threads add and remove meanwhile.
        _kept.pop(oldest, None)


def clear() -> None:
    """Drop everything that is kept."""
    _kept.clear()
