"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole(path: Path) -> Iterator[TextIO]:
    """Write a text file under another name, and give it its own when all is written.

    A link goes on pointing to what it points to. What is no file, as a pipe or a device, is written to as it is.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="") as out:
                yield out
            return
        at = path.resolve()
        part = at.with_name(f".{at.name}.part")
        try:
            with part.open("w", encoding="utf-8", newline="") as out:
                yield out
            os.replace(part, at)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if error.filename is None:  # What is written to does not say its name: a full disk would be another file's.
            error.filename = str(path)
        raise


def must_be_writable(path: Path, what: str, *, is_folder: bool = False) -> None:
    """Refuse before a run what could not be written after it."""
    if is_folder:
        nearest = next(p for p in (path, *path.absolute().parents) if p.exists())
        if not nearest.is_dir():
            raise ValueError(f"{what} '{path}' must be a folder, and {_it(nearest, path)} is a file")
    else:
        if path.is_dir():
            raise ValueError(f"{what} '{path}' must be a file, and is a folder")
        nearest = path.resolve().parent
        if not nearest.is_dir():
            raise ValueError(f"{what} '{path}' must lie in a folder that exists")
        if path.exists() and not path.is_file():
            if not os.access(path, os.W_OK):
                raise ValueError(f"{what} '{path}' must be writable, and is not")
            return
    if why := _unwritable(nearest):
        raise ValueError(f"{what} '{path}' must be writable, and {_it(nearest, path)} is not: {why}")


def must_be_none_of(path: Path, what: str, *read: str | None) -> None:
    """Refuse to write over what is read: files, as `jobs.csv` or `philly:jobs.csv?first=10`."""
    for text in read:
        name = (text or "").partition("?")[0]
        for file in (name, name.partition(":")[2]):
            if file and path.exists() and os.path.exists(file) and path.samefile(file):
                raise ValueError(f"{what} '{path}' must be another file than '{text}', which is read")


def _it(one: Path, path: Path) -> str:
    return "it" if one == path else f"'{one}'"


def _unwritable(folder: Path) -> str:
    """Why nothing can be written there; empty if it can. A user who may do all is told so by `access` of any folder."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)
