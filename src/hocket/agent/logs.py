"""What an attempt printed: `log` in its run folder, and full files beside it, so that it never takes more than stated.

A full file is renamed to `log.` and the place of its first byte in the whole output. So a reader can go on from any
byte, whatever was renamed or removed meanwhile.
"""

from __future__ import annotations

import os

_NAME = "log"


class Log:
    """The writer. It never raises: with a full disk the job goes on, and the log says later how much is missing."""

    def __init__(self, folder: str, most_bytes: int, kept: int) -> None:
        self._folder, self._most, self._kept = folder, most_bytes, kept
        self._path = os.path.join(folder, _NAME)
        self._start = _end_of_full(_full(folder))
        self._fd = -1
        self._size = 0
        self._lost = 0
        self.trouble = ""  # why nothing could be written the last time

    def write(self, data: bytes) -> None:
        """Append, in as many files as it needs."""
        rest = memoryview(data)
        try:
            if self._fd < 0:
                self._open()
            if self._lost:
                os.write(self._fd, f"\n[hocket: {self._lost} bytes are missing here: {self.trouble}]\n".encode())
                self._lost, self._size = 0, os.fstat(self._fd).st_size
            while rest:
                rest = rest[self._append(rest) :]
            self.trouble = ""
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._lost += len(rest)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _append(self, data: memoryview) -> int:
        """Write what fits, to the end of a line if there is one; how much that was."""
        room = max(self._most - self._size, 0)
        if len(data) <= room:
            written = os.write(self._fd, data)
            self._size += written
            return written
        part = bytes(data[:room])
        part = part[: part.rfind(b"\n") + 1] or part
        written = os.write(self._fd, part)
        self._size += written
        if written == len(part):
            self._turn_over()
        return written

    def _turn_over(self) -> None:
        self.close()
        os.rename(self._path, f"{self._path}.{self._start}")
        self._start += self._size
        for _start, path in _full(self._folder)[: -self._kept]:
            os.unlink(path)
        self._open()


def log_files(folder: str) -> list[tuple[int, str]]:
    """The files of a log that are still there, oldest first, each with the place of its first byte."""
    full = _full(folder)
    return [*full, (_end_of_full(full), os.path.join(folder, _NAME))]


def read_log(folder: str, place: int = 0, most_bytes: int = 1 << 16) -> tuple[int, bytes]:
    """What was printed from this place on, and the place where that really begins: older bytes may be gone."""
    while True:
        files = log_files(folder)
        start, path = next((f for f in reversed(files) if f[0] <= place), files[0])
        try:
            with open(path, "rb") as file:
                file.seek(max(place - start, 0))
                data = file.read(most_bytes)
        except FileNotFoundError:
            data = b""
        if log_files(folder) == files:  # Otherwise it was renamed under our eyes: look again.
            return max(place, start), data


def _full(folder: str) -> list[tuple[int, str]]:
    found = [name[len(_NAME) + 1 :] for name in os.listdir(folder) if name.startswith(f"{_NAME}.")]
    return sorted((int(start), os.path.join(folder, f"{_NAME}.{start}")) for start in found if start.isdigit())


def _end_of_full(full: list[tuple[int, str]]) -> int:
    try:
        return full[-1][0] + os.stat(full[-1][1]).st_size if full else 0
    except FileNotFoundError:  # The oldest and only one was removed meanwhile; the reader looks again.
        return full[-1][0]
