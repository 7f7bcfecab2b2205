"""Keeps the blocks that an input file was read into, for the next start on the same file: reading is most of a start.

An entry is one file, there whole or not at all. The process that reads the input has a lock on what will be the entry;
others that need the same input wait for it. Entries may be removed at any time: processes that use one have it open.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec

from hocket import __version__
from hocket.runtimes.paramserver.algorithm import DataBlock
from hocket.runtimes.paramserver.file_blocks import FileBlocks, ReadInput
from hocket.runtimes.paramserver.packed_arrays import PAGE, ArrayPlaces, checksum

_log = logging.getLogger(__name__)
_FORMAT = 1  # of entries, and of the blocks that applications make of a file
_LEAST_BYTES = 1 << 20  # A smaller file is read in no time.
_MOST = 0.1  # of the disk's free room, for all entries together
_ENTRY, _PART = ".input", ".part"
_DIGEST = hashlib.sha256().digest_size
_LOOK_S = 0.05
_SIGN_OF_LIFE_S = 1.0
_PAUSED_S = 5.0  # A process that reads, and gives no sign of life for so long, may be paused for hours.
_ABANDONED_S = 3600.0


class _SavedBlock(msgspec.Struct, frozen=True):
    name: str
    at: int
    arrays: tuple[tuple[str, tuple[int, ...], str], ...]  # name, shape, dtype
    checksum: int


class _Contents(msgspec.Struct, frozen=True):
    """What is at the end of an entry."""

    facts: dict[str, Any]
    total_bytes: int
    blocks: tuple[_SavedBlock, ...]


class InputCache:
    """Entries in one folder, of which those that were not used for longest are removed for new ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def blocks(self, path: Path, key: Mapping[str, Any], read: Callable[[], ReadInput]) -> ReadInput:
        """What was kept of a file; else `read` it. `key` is all that its blocks depend on beside the file."""
        try:
            found = path.stat()
            if found.st_size < _LEAST_BYTES:
                return read()
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return read()
        whole = (_FORMAT, __version__, str(path.resolve()), found.st_size, found.st_mtime_ns, sorted(key.items()))
        target = self._folder / (hashlib.sha256(repr(whole).encode()).hexdigest()[:32] + _ENTRY)
        if (entry := _Entry.opened(target, read)) is not None:
            return entry.input()
        with _made_once(target) as part:
            if (entry := _Entry.opened(target, read)) is not None:  # Another process has made it.
                return entry.input()
            given = read()
            if part is None or given.blocks.total_bytes > self._room():
                return given
            try:
                _write(part, given)
                part.rename(target)
            except OSError as error:
                _log.info("input is not kept in '%s': %s", self._folder, error.strerror)
                return given
        self._remove_old(target)
        entry = _Entry.opened(target, read)
        if entry is None:
            return given
        given.blocks.close()
        return entry.input()

    def _room(self) -> float:
        used = sum(size for _, size, _ in self._entries())
        return _MOST * (shutil.disk_usage(self._folder).free + used)

    def _entries(self) -> list[tuple[float, int, Path]]:
        """When each was used last, its size, and where it is; the one that was not used for longest first."""
        found = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                of = path.stat()
                if path.suffix == _ENTRY:
                    found.append((of.st_mtime, of.st_size, path))
                elif path.suffix == _PART and of.st_mtime < time.time() - _ABANDONED_S:
                    path.unlink()
        return sorted(found)

    def _remove_old(self, new: Path) -> None:
        """Make room, as there is a new one."""
        entries, most = self._entries(), self._room()
        used = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if used > most and path != new:
                path.unlink(missing_ok=True)
                used -= size


@contextmanager
def _made_once(target: Path) -> Iterator[Path | None]:
    """Where this process writes an entry that is renamed when it is whole; None: no process must write it now."""
    part = target.with_suffix(_PART)
    lock = _lock(part, target)
    if lock is None:
        yield None
        return
    ended = Event()

    def give_signs_of_life() -> None:
        while not ended.wait(_SIGN_OF_LIFE_S):
            os.utime(lock)

    thread = Thread(target=give_signs_of_life, daemon=True)
    thread.start()
    try:
        yield part
    finally:
        ended.set()
        thread.join()
        part.unlink(missing_ok=True)
        os.close(lock)


def _lock(part: Path, target: Path) -> int | None:
    """A lock on this new file; None: another process has made the target, or began to and is paused."""
    seen, since_s = 0, time.monotonic()
    while not target.exists():
        try:
            lock = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return None
        has_lock = False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Else it was another process's, which has renamed or removed it.
            has_lock = part.exists() and os.path.samestat(os.fstat(lock), part.stat())
            if has_lock:
                return lock
        except BlockingIOError:
            changed = os.fstat(lock).st_mtime_ns
            if changed != seen:
                seen, since_s = changed, time.monotonic()
            elif time.monotonic() > since_s + _PAUSED_S:
                return None
            time.sleep(_LOOK_S)
        except OSError:  # The file system has no locks.
            return None
        finally:
            if not has_lock:
                os.close(lock)
    return None


def _write(part: Path, given: ReadInput) -> None:
    """One block after the other. Raises OSError."""
    saved = []
    with open(part, "r+b") as file:
        for block in given.blocks:
            places = ArrayPlaces.of(block.data)
            buffer = mmap.mmap(-1, max(places.size, PAGE))
            places.put(block.data, buffer)
            arrays = tuple((name, array.shape, array.dtype.str) for name, array in block.data.items())
            saved.append(_SavedBlock(block.name, file.tell(), arrays, checksum(buffer, 0, places.size)))
            file.write(memoryview(buffer)[: places.size])
        contents = msgspec.msgpack.encode(_Contents(given.facts, given.blocks.total_bytes, tuple(saved)))
        file.write(contents + hashlib.sha256(contents).digest() + len(contents).to_bytes(8, "little"))
        file.truncate()


class _Entry:
    """The blocks in an entry. What is damaged is read from the input file again."""

    def __init__(self, path: Path, file: int, contents: _Contents, read: Callable[[], ReadInput]) -> None:
        self._path, self._file, self._contents, self._read = path, file, contents, read
        self._again: FileBlocks | None = None
        self._close = weakref.finalize(self, os.close, file)
        self.size = contents.total_bytes

    @classmethod
    def opened(cls, path: Path, read: Callable[[], ReadInput]) -> _Entry | None:
        """None if it is not there, or damaged."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            with suppress(OSError):  # It may be another user's, or on a disk that is read-only.
                os.utime(path)
            return cls(path, file, _contents(file), read)
        except (OSError, ValueError):
            os.close(file)
            with suppress(OSError):
                path.unlink()
            return None

    def input(self) -> ReadInput:
        """As `read` gave it."""
        return ReadInput(self._contents.facts, FileBlocks(range(len(self._contents.blocks)), self._block, self))

    def _block(self, number: int) -> DataBlock:
        if self._again is not None:
            return self._again[number]
        saved = self._contents.blocks[number]
        places = ArrayPlaces.of_forms(saved.arrays)
        buffer = mmap.mmap(-1, max(places.size, PAGE))
        if _is_read(self._file, memoryview(buffer)[: places.size], saved.at) and (
            checksum(buffer, 0, places.size) == saved.checksum
        ):
            return DataBlock(saved.name, places.arrays(buffer))
        _log.warning("'%s' is damaged: the input is read again", self._path)
        self._path.unlink(missing_ok=True)
        self._again = self._read().blocks
        return self._again[number]

    def close(self) -> None:
        """Give back what it has."""
        self._close()
        if self._again is not None:
            self._again.close()


def _contents(file: int) -> _Contents:
    """What is at the end. Raises OSError, and ValueError if it is damaged."""
    size = os.fstat(file).st_size
    end = os.pread(file, _DIGEST + 8, max(0, size - _DIGEST - 8))
    digest, length = end[:_DIGEST], int.from_bytes(end[_DIGEST:], "little")
    content = os.pread(file, length, size - len(end) - length) if length < size else b""
    if hashlib.sha256(content).digest() != digest:
        raise ValueError
    return msgspec.msgpack.decode(content, type=_Contents)


def _is_read(file: int, view: memoryview, at: int) -> bool:
    """Whether the file is as long as it should be; a disk's error is none."""
    done = 0
    while done < len(view):
        try:
            count = os.preadv(file, [view[done:]], at + done)
        except OSError:
            return False
        if not count:
            return False
        done += count
    return True
