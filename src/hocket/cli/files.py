"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole(path: Path) -> Iterator[TextIO]:
    """Write a text file under another name, and give it its own when all is written."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as out:
            yield out
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def must_be_writable(path: Path, what: str, *, is_folder: bool = False) -> None:
    """Refuse before a run what could not be written after it."""
    if is_folder:
        if path.exists() and not path.is_dir():
            raise ValueError(f"{what} '{path}' must be a folder, and is a file")
        nearest = next(p for p in (path, *path.absolute().parents) if p.exists())
    else:
        if path.is_dir():
            raise ValueError(f"{what} '{path}' must be a file, and is a folder")
        nearest = path.absolute().parent
        if not nearest.is_dir():
            raise ValueError(f"{what} '{path}' must lie in a folder that exists")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{what} '{path}' must be writable, and '{nearest}' is not")
