"""The sources as syntax trees, read once for all tests of a process."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """A file as a syntax tree. Nothing in it is garbage, and to look for some would take longer than to read it.

    Trees are not searched later either: all of them together are most of what a process of tests has.
    """
    _forget_garbage()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def _forget_garbage() -> None:
    """Once: what is frozen with the trees would never be taken apart."""
    gc.collect()
