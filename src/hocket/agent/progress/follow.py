"""A file that another process writes: what has been added to it."""

from __future__ import annotations

import os
import stat

MOST_AT_ONCE = 1 << 20  # bytes; the rest comes the next time
LAST_LOOKS = 64  # when there is no next time
_ANCHOR = 64  # bytes


class Followed:
    """Reads on where it stopped.

    What stood in the file at first is an earlier run's, and passed over. A file that was replaced or written anew is
    read on from the same place if what stands before it is the same, and from its beginning if not.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = 0
        self._anchor = b""  # what stands before the place
        self._seen = self._status()
        if self._seen is not None:
            self._place = self._seen[1]
            start = max(0, self._place - _ANCHOR)
            self._anchor = self._bytes(start, self._place - start)

    def head(self, most: int) -> bytes:
        """The beginning of what was passed over."""
        return self._bytes(0, min(most, self._place))

    def read(self) -> tuple[bytes, bool]:
        """What was added, and whether that is the file's beginning."""
        status = self._status()
        if status is None or status == self._seen:
            return b"", False
        start = self._place - len(self._anchor)
        data = self._bytes(start, len(self._anchor) + MOST_AT_ONCE)
        if not data.startswith(self._anchor):
            start, self._anchor = 0, b""
            data = self._bytes(0, MOST_AT_ONCE)
        added = data[len(self._anchor) :]
        self._place = start + len(data)
        self._anchor = data[-_ANCHOR:]
        self._seen = status if self._place >= status[1] else None
        return added, self._place == len(added)

    def _status(self) -> tuple[int, int, int] | None:
        """What changes with the file: its identity, size and time. None if there is no file."""
        try:
            found = os.stat(self._path)
        except (OSError, ValueError):
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None

    def _bytes(self, start: int, most: int) -> bytes:
        try:
            # Should a pipe have come in its place, we do not wait for it.
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except (OSError, ValueError):
            return b""
        try:
            return os.pread(fd, most, start)
        except OSError:
            return b""
        finally:
            os.close(fd)


def places(path: str, cwd: str, checkpoint_dir: str) -> list[str]:
    """Where a path of the configuration may be: in the working directory or in the checkpoint folder."""
    variable = "$HOCKET_CHECKPOINT_DIR"
    if checkpoint_dir and path.startswith(variable):
        return [checkpoint_dir + path[len(variable) :]]
    folders = [cwd, checkpoint_dir] if checkpoint_dir and not os.path.isabs(path) else [cwd]
    return [os.path.join(folder, path) for folder in dict.fromkeys(folders)]
