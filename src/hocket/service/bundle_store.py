"""Bundles: the working directories that came with jobs, kept in the controller's home while a job needs them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hocket.agent.bundle import MOST_BYTES, PART_BYTES, digest_of, is_digest

_UNUSED_S = 86_400.0  # that a bundle stays which no live job needs: the next job may be of the same directory
_PART = ".part"


class BundleRefused(ValueError):
    """A bundle that cannot be kept; says why."""


class BundleStore:
    """Files called by their digest. Several calls may write one at a time: they write the same bytes."""

    def __init__(self, folder: Path | None) -> None:
        """Without a folder, it keeps none."""
        self._folder = folder

    def has(self, digest: str) -> bool:
        """Is it there, as a whole? If so, it stays for a while."""
        if self._folder is None or not is_digest(digest):
            return False
        try:
            os.utime(self._folder / digest)
        except OSError:
            return False
        return True

    def add(self, digest: str, offset: int, size: int, part: bytes) -> bool:
        """Keep a part of a bundle of so many bytes; whether it is whole now. Raises BundleRefused and OSError."""
        if self._folder is None:
            raise BundleRefused("this controller keeps no bundles")
        if not is_digest(digest):
            raise BundleRefused(f"a bundle is called by its SHA-256 in 64 digits, not '{digest[:80]}'")
        if not 0 < size <= MOST_BYTES:
            raise BundleRefused(f"a bundle must have 1 to {MOST_BYTES} bytes, not {size}")
        if offset + len(part) > size or len(part) > PART_BYTES:
            raise BundleRefused(f"a part must have at most {PART_BYTES} bytes and end within the bundle's {size}")
        if self.has(digest):
            return True
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{digest}{_PART}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            left, at = memoryview(part), offset
            while left:
                written = os.pwrite(fd, left, at)
                left, at = left[written:], at + written
        finally:
            os.close(fd)
        if offset + len(part) < size:
            return False
        if path.stat().st_size != size or digest_of(str(path)) != digest:
            path.unlink(missing_ok=True)
            raise BundleRefused(f"the bytes of bundle {digest[:12]} are not those that its name says: upload it again")
        os.rename(path, self._folder / digest)
        return True

    def read(self, digest: str, offset: int) -> bytes:
        """The next bytes; none at its end. Raises KeyError if it is not there."""
        if self._folder is None or not is_digest(digest):
            raise KeyError(digest)
        try:
            with open(self._folder / digest, "rb") as file:
                file.seek(offset)
                return file.read(PART_BYTES)
        except FileNotFoundError:
            raise KeyError(digest) from None

    def sweep(self, needed: Iterable[str]) -> None:
        """Remove what was not used for long and no live job needs."""
        if self._folder is None or not self._folder.is_dir():
            return
        kept, before_s = set(needed), time.time() - _UNUSED_S
        for path in self._folder.iterdir():
            with suppress(OSError):
                if path.name not in kept and path.stat().st_mtime < before_s:
                    path.unlink()
