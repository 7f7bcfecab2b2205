"""What a COMM demands of the network, as against what it got while other jobs communicated too."""

from __future__ import annotations

from collections import deque

_LAST = 20  # COMMs: some of them had the network to themselves


class CommDemand:
    """By the fastest of the last COMMs of about as many bytes."""

    def __init__(self) -> None:
        self._s_per_byte: dict[int, deque[float]] = {}  # by the bytes' number of bits: small ones mostly wait

    def needed_s(self, moved_bytes: int, took_s: float) -> float:
        """The time that one which moved so many bytes and took so long would take alone."""
        if not moved_bytes:
            return took_s
        seen = self._s_per_byte.setdefault(moved_bytes.bit_length(), deque(maxlen=_LAST))
        seen.append(took_s / moved_bytes)
        return moved_bytes * min(seen)
