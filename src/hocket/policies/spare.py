"""What one decision worked out and the next can go on with, so that it looks only at what changed since.

Nothing here decides anything: whatever is kept must come to the same as from an empty start, and `forget` makes one.
Whoever works with a thing has taken it out, so that decisions in several threads do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_MOST = 8  # things that are kept
_spare: dict[Hashable, Any] = {}  # what nobody works with, by what it is about; the latest last


@contextmanager
def taken_out(about: Hashable, make: Callable[[], T]) -> Iterator[T]:
    """What was put back under this name, or a new one; it is put back at the end."""
    found = _spare.pop(about, None)
    if found is None:
        found = make()
    yield found
    _spare[about] = found  # Not if it broke off: nobody knows what it holds then.
    for oldest in list(_spare)[:-_MOST]:  # A copy: others may come and go meanwhile.
        _spare.pop(oldest, None)


def forget() -> None:
    """Begin with nothing."""
    _spare.clear()
