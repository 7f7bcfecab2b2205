"""The end of a process that has made much: the system takes memory back at once, Python one object after another."""

from __future__ import annotations

import gc

_kept: list[object] = []


def keep(made: object) -> None:
    """Keep this until the process ends, in the place of what was kept before."""
    _kept[:] = [made]


def leave() -> None:
    """The process ends now: what is kept is not taken apart, and no module is searched for cycles."""
    if _kept:
        _kept.append(_kept)  # A cycle goes when the collector finds it, and that looks at nothing frozen.
    gc.freeze()
