"""What the workers print, as it comes; where there are several, line by line, so that no line has two authors."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 1 << 16  # what a pipe holds
_AT_ONCE = 16 * _CHUNK  # before anything else is looked at
_MOST_DRAINED = 64 << 20  # after the end, should somebody immortal go on printing
_LONGEST_LINE = 1 << 16  # that is waited for


class Output:
    """The reading ends of the workers' pipes. One that is closed is no worker's end."""

    def __init__(self, pipes: list[int], take: Callable[[bytes], None]) -> None:
        for fd in pipes:
            os.set_blocking(fd, False)
        self._begun = dict.fromkeys(pipes, b"")  # lines that were not ended yet
        self._by_line = len(pipes) > 1
        self._take = take

    def sources(self) -> dict[int, Callable[[], None]]:
        """What to do when one of these can be read."""
        return {fd: lambda fd=fd: self._read(fd, _AT_ONCE) for fd in self._begun}  # type: ignore[misc]

    def drain(self) -> None:
        """Take what is left."""
        for fd in list(self._begun):
            self._read(fd, _MOST_DRAINED)
            if fd in self._begun:
                self._close(fd)

    def _read(self, fd: int, most: int) -> None:
        while most > 0:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._close(fd)
                return
            if self._by_line:
                self._take_lines(fd, self._begun[fd] + data)
            else:
                self._take(data)
            if len(data) < _CHUNK:
                return
            most -= len(data)

    def _take_lines(self, fd: int, text: bytes) -> None:
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if not end and len(text) > _LONGEST_LINE:
            end = len(text)
        self._begun[fd] = text[end:]
        self._take(text[:end])

    def _close(self, fd: int) -> None:
        os.close(fd)
        self._take(self._begun.pop(fd))
