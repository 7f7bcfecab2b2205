"""A forked child shares its parent's locks and sessions, and must not keep them when the parent dies."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Shared(Protocol):
    """Something that only the process which made it may keep."""

    def leave(self) -> None:
        """In a forked child: close what is shared, and nothing else."""


_shared: WeakSet[Shared] = WeakSet()


def not_for_children(shared: Shared) -> None:
    """From now on, every child that is forked leaves this to its parent."""
    _shared.add(shared)


def _leave_all() -> None:
    for shared in list(_shared):
        shared.leave()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_all)
