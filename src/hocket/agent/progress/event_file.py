"""TensorBoard's event files: TFRecord frames, each with one event.

A frame is the payload's length (8 bytes), the checksum of these (4), the payload, its checksum (4). A payload that is
not what its checksum says is passed over; where a length is not, nobody knows where the next frame begins, and the
file is read no further. A frame that is not whole is waited for.
"""

from __future__ import annotations

import os
import struct

from hocket.agent.progress.crc32c import masked
from hocket.agent.progress.event_message import Scalars, scalars

LONGEST_PAYLOAD = 1 << 16  # bytes; images, graphs and audio are longer, and passed over unread
MOST_AT_ONCE = 1 << 20  # bytes; the rest comes the next time
_HEADER, _FOOTER = 12, 4


class EventFile:
    """Reads on where it stopped."""

    def __init__(self, path: str, passed: int = 0) -> None:
        """So many bytes are an earlier run's, and passed over."""
        self._path = path
        self._passed = passed
        self._place = 0
        self._size = passed  # when there was nothing more to read

    def read(self) -> list[Scalars]:
        """The scalars that were added."""
        return [found for payload in self._payloads() if (found := scalars(payload))]

    def _payloads(self) -> list[bytes]:
        payloads: list[bytes] = []
        try:
            size = os.stat(self._path).st_size
            if size == self._size:
                return payloads
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return payloads
        until = min(size, max(self._place, self._passed) + MOST_AT_ONCE)
        try:
            while self._place < until and (frame := self._frame(fd, size)) is not None:
                payloads += frame
        except OSError:
            until = size  # Try again when it has changed.
        finally:
            os.close(fd)
        if self._place < until or until == size:
            self._size = size
        return payloads

    def _frame(self, fd: int, size: int) -> list[bytes] | None:
        """The payload of the next frame, if it is wanted and sound; None if the frame is not whole."""
        header = os.pread(fd, _HEADER, self._place)
        if len(header) < _HEADER:
            return None
        length, checksum = struct.unpack("<QI", header)
        begin, end = self._place + _HEADER, self._place + _HEADER + length + _FOOTER
        if checksum != masked(header[:8]) or end > size:
            return None
        self._place = end
        if end <= self._passed or length > LONGEST_PAYLOAD:
            return []
        payload = os.pread(fd, length, begin)
        return [payload] if os.pread(fd, _FOOTER, begin + length) == struct.pack("<I", masked(payload)) else []
