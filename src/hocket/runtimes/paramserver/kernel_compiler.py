"""Turns a Python function over arrays into machine code that runs without the GIL, and keeps that on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compiled(function: Callable[..., Any]) -> Any:
    """The function as numba compiles it when it is first called. Sums may be reordered, NaNs are kept."""
    from numba import njit

    return njit(
        cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}
    )(function)  # fmt: skip
