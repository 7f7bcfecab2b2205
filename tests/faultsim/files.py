"""Disks in memory: files, folders, pipes with names, locks; and what is left of them when the power fails."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_WRITTEN_BACK_S = 5.0  # after which the system writes to disk what no process asked it to


class Stat(NamedTuple):
    """As `os.stat_result`, as far as it is asked for."""

    st_size: int
    st_mtime: float
    st_mode: int


class File:
    """The content of a file, now and on the disk itself."""

    def __init__(self, now_s: float) -> None:
        self.data = bytearray()
        self.changed_s = now_s
        self.locks: dict[OpenFile, bool] = {}  # by whom it is locked → exclusively?
        self.watchers: dict[int, Callable[[], None]] = {}  # are told that it was written to
        self._on_disk: bytes | None = None  # None: the disk does not know the file yet
        self._dirty_s: float | None = None  # since when the disk has something else

    def touch(self, now_s: float) -> None:
        """It is about to be changed."""
        if self._dirty_s is None:
            self._dirty_s = now_s
        elif now_s - self._dirty_s > _WRITTEN_BACK_S:
            self._on_disk, self._dirty_s = bytes(self.data), now_s
        self.changed_s = now_s

    def told(self) -> None:
        """It was changed: whoever watches it learns that."""
        for call in list(self.watchers.values()):
            call()

    def sync(self) -> None:
        """The disk has it."""
        self._on_disk, self._dirty_s = bytes(self.data), None

    def survives(self, now_s: float, rng: random.Random) -> bool:
        """The power fails: is there still a file, and with what?"""
        if self._dirty_s is None or (now_s - self._dirty_s <= _WRITTEN_BACK_S and rng.random() < 0.5):
            return True
        if now_s - self._dirty_s > _WRITTEN_BACK_S:
            return True
        if self._on_disk is None:
            return False
        self.data, self._dirty_s = bytearray(self._on_disk), None
        return True


class Pipe:
    """A pipe, with a name or without: bytes that wait, as long as it is open for reading."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.readers: list[OpenFile] = []
        self.told: Callable[[], None] = lambda: None  # that there is something to read


class OpenFile:
    """A descriptor."""

    def __init__(self, of: File | Pipe, flags: int) -> None:
        self.of, self.flags, self.place = of, flags, 0

    def close(self) -> None:
        """Let go of it, of its lock, and of what waits in a pipe that is not read any more."""
        if isinstance(self.of, File):
            self.of.locks.pop(self, None)
        elif self in self.of.readers:
            self.of.readers.remove(self)
            if not self.of.readers:
                self.of.data.clear()


class Disk:
    """Files by path; folders know the names in them. It has no process: whoever calls has been asked before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._folders: dict[str, dict[str, None]] = {"/": {}}
        self._files: dict[str, File | Pipe] = {}
        self.is_full = False

    # -- names ----------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> OpenFile:
        """As `os.open`."""
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        found = self._files.get(path)
        if found is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            found = self._created(path, File(self._clock()))
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        opened = OpenFile(found, flags)
        if isinstance(found, Pipe):
            if flags & os.O_ACCMODE == os.O_WRONLY and not found.readers:
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
            if flags & os.O_ACCMODE != os.O_WRONLY:
                found.readers.append(opened)
        elif flags & os.O_TRUNC and found.data:
            found.touch(self._clock())
            found.data.clear()
        return opened

    def mkfifo(self, path: str) -> None:
        """As `os.mkfifo`."""
        if path in self._files or path in self._folders:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._created(path, Pipe())

    def makedirs(self, path: str, exist_ok: bool) -> None:
        """As `os.makedirs`."""
        if path in self._folders:
            if not exist_ok:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            return
        if path in self._files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        above, _, name = path.rpartition("/")
        self.makedirs(above or "/", True)
        self._require_space(path)
        self._folders[path] = {}
        self._folders[above or "/"][name] = None

    def rename(self, old: str, new: str) -> None:
        """As `os.replace`, of files."""
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        file = self._files.pop(old)
        above, _, name = old.rpartition("/")
        self._folders[above or "/"].pop(name)
        self._files.pop(new, None)
        self._enter(new, file)

    def unlink(self, path: str) -> None:
        """As `os.unlink`."""
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        above, _, name = path.rpartition("/")
        self._folders[above or "/"].pop(name)

    def rmdir(self, path: str) -> None:
        """As `os.rmdir`."""
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._folders[path]:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        del self._folders[path]
        above, _, name = path.rpartition("/")
        self._folders[above or "/"].pop(name)

    def listdir(self, path: str) -> list[str]:
        """As `os.listdir`; in no order that a program may rely on."""
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return list(self._folders[path])

    def below(self, path: str) -> Iterator[str]:
        """All that is in a folder, at any depth, the deepest first."""
        for name in list(self._folders.get(path, ())):
            inner = f"{path}/{name}"
            yield from self.below(inner)
            yield inner

    def is_folder(self, path: str) -> bool:
        """Is it?"""
        return path in self._folders

    def exists(self, path: str) -> bool:
        """Is there anything?"""
        return path in self._folders or path in self._files

    def stat(self, path: str) -> Stat:
        """As `os.stat`."""
        if path in self._folders:
            return Stat(4096, 0.0, stat.S_IFDIR | 0o700)
        found = self._files.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(found, Pipe):
            return Stat(0, 0.0, stat.S_IFIFO | 0o600)
        return Stat(len(found.data), found.changed_s, stat.S_IFREG | 0o600)

    def file(self, path: str) -> File | None:
        """A file by its name."""
        found = self._files.get(path)
        return found if isinstance(found, File) else None

    def put(self, path: str, data: bytes) -> None:
        """A file that is there from the beginning."""
        self.makedirs(path.rpartition("/")[0] or "/", True)
        if path in self._files:
            self.unlink(path)
        file = File(self._clock())
        file.data += data
        file.sync()
        self._enter(path, file)

    # -- content --------------------------------------------------------------------------------------------------

    def write(self, opened: OpenFile, data: bytes, place: int | None = None) -> int:
        """As `os.write` and `os.pwrite`."""
        of = opened.of
        if isinstance(of, Pipe):
            if not of.readers:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            of.data += data
            of.told()
            return len(data)
        if place is None:
            place = len(of.data) if opened.flags & os.O_APPEND else opened.place
            opened.place = place + len(data)
        if place + len(data) > len(of.data):
            self._require_space("")
        of.touch(self._clock())
        of.data[place : place + len(data)] = data
        of.told()
        return len(data)

    def truncate(self, opened: OpenFile, length: int) -> None:
        """As `os.ftruncate`."""
        assert isinstance(opened.of, File)
        opened.of.touch(self._clock())
        del opened.of.data[length:]

    # -- faults ---------------------------------------------------------------------------------------------------

    def lose_power(self, rng: random.Random) -> None:
        """What was not written to the disk itself may be gone; no process has a file open any more."""
        for path in list(self._files):
            file = self._files[path]
            if isinstance(file, File):
                file.locks.clear()
                file.watchers.clear()
                if not file.survives(self._clock(), rng):
                    self.unlink(path)
            else:
                file.readers.clear()
                file.data.clear()

    def _created(self, path: str, file: Any) -> Any:
        self._require_space(path)
        self._enter(path, file)
        return file

    def _enter(self, path: str, file: File | Pipe) -> None:
        above, _, name = path.rpartition("/")
        if (above or "/") not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._folders[above or "/"][name] = None
        self._files[path] = file

    def _require_space(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
