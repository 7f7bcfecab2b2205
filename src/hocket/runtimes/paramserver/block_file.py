"""A file without a name for what does not fit into memory: it is gone with the process, however that ends.

It is read and written around the page cache (O_DIRECT), for otherwise the kernel would keep in memory what does not fit
into it, and its cost would show only when another job needs that memory. That is as fast as to read through the cache
and to drop what was read, at half of the CPU time (`python -m benchmarks.block_store`); the latter is done where the
file system has no O_DIRECT.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import tempfile
from contextlib import suppress

from hocket.runtimes.paramserver.algorithm import TrainingError

_READ_BYTES = 8 << 20  # in one call
MIB = 1 << 20
_log = logging.getLogger(__name__)


class SpillError(TrainingError):
    """What is to be kept does not fit into the memory budget or onto the disk, or cannot be read; one line."""


class BlockFile:
    """Ranges of whole pages in one file."""

    def __init__(self, folder: str, refused: str = "") -> None:
        """Nothing is opened before something is written; `refused` says why nothing may be."""
        self.folder, self.fd, self.is_direct = folder, -1, False
        self._refused = refused
        self.size = 0

    def check_room(self, size: int) -> None:
        """Raises SpillError if so many bytes cannot be written; nothing is written."""
        try:
            room = os.statvfs(self.folder)
        except OSError as error:
            raise SpillError(f"folder '{self.folder}' cannot be used for spilling: {error.strerror}") from error
        free = room.f_bavail * room.f_frsize
        if free < size:
            said = f"{size / MIB:.1f} MiB of input do not fit into memory, and folder '{self.folder}' has"
            raise SpillError(f"{said} {free / MIB:.1f} MiB free")

    def open(self) -> int:
        """The file. Raises OSError."""
        if self._refused:
            raise SpillError(self._refused)
        if self.fd < 0:
            self.fd, self.is_direct = nameless_file(self.folder)
            if not self.is_direct:
                _log.warning(
                    "folder '%s' has no O_DIRECT: blocks are read through the page cache, and dropped from it",
                    self.folder,
                )
        return self.fd

    def write(self, what: str, buffer: mmap.mmap, offset: int, size: int, place: int | None = None) -> int:
        """Write so many bytes of a buffer to a place, or to a new one at the end; the place.

        Raises SpillError, and leaves the file as long as it was.
        """
        try:
            fd = self.open()
            at = self.size if place is None else place
            try:
                if place is None:
                    os.posix_fallocate(fd, at, max(size, 1))  # so that the disk is full now, or not at all
                _write_all(fd, buffer, offset, size, at)
            except OSError:
                os.ftruncate(fd, self.size)
                raise
            if not self.is_direct:
                os.fdatasync(fd)
                os.posix_fadvise(fd, at, size, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise SpillError(_no_room(what, size, self.folder, error)) from error
        self.size = max(self.size, at + size)
        return at

    def read(self, what: str, buffer: mmap.mmap, offset: int, size: int, place: int) -> None:
        """Read so many bytes from a place. Raises SpillError."""
        with memoryview(buffer) as view:
            done = 0
            while done < size:
                with view[offset + done : offset + min(done + _READ_BYTES, size)] as part:
                    try:
                        count = os.preadv(self.fd, [part], place + done)
                    except OSError as error:
                        raise SpillError(f"{what} cannot be read from disk: {error.strerror}") from error
                if not count:
                    raise SpillError(f"{what} ends after {done} of {size} bytes on disk")
                done += count
        if not self.is_direct:
            os.posix_fadvise(self.fd, place, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Give the disk back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd, self.size = -1, 0


def is_in_memory(folder: str) -> bool:
    """Whether a folder's file system is in memory, so that what is written there frees none."""
    path = os.path.realpath(folder)
    found = ("", "")
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, at, kind, *_ = line.split(" ")
            at = at.replace("\\040", " ")
            if (path == at or path.startswith(at.rstrip("/") + "/")) and len(at) >= len(found[0]):
                found = (at, kind)
    return found[1] in ("tmpfs", "ramfs")


def _write_all(fd: int, buffer: mmap.mmap, offset: int, size: int, place: int) -> None:
    with memoryview(buffer) as view:
        done = 0
        while done < size:
            with view[offset + done : offset + size] as part:
                done += os.pwritev(fd, [part], place + done)


def nameless_file(folder: str, direct: bool = True) -> tuple[int, bool]:
    """A file that no other process finds; whether it goes around the page cache, if it shall. Raises OSError."""
    for flag in (os.O_DIRECT, 0) if direct else (0,):
        try:
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC | flag, 0o600), bool(flag)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EISDIR):
                raise
    fd, path = tempfile.mkstemp(prefix="blocks-", dir=folder)  # The file system has no files without a name.
    os.unlink(path)
    return fd, False


def _no_room(what: str, size: int, folder: str, error: OSError) -> str:
    said = f"{what} of {size / MIB:.1f} MiB cannot be kept in folder '{folder}'"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with suppress(OSError):
            room = os.statvfs(folder)
            return f"{said}: {room.f_bavail * room.f_frsize / MIB:.1f} MiB are free"
    return f"{said}: {error.strerror}"
