"""Whole lines from bytes that come in any pieces."""

from __future__ import annotations


class Lines:
    """Keeps the beginning of a line until its end comes. Of a line beyond the limit, only the beginning is seen."""

    def __init__(self, limit: int, overwritten: bool = False) -> None:
        self._limit = limit
        self._overwritten = overwritten  # a carriage return ends a line, too
        self._rest = b""

    def cut(self, data: bytes) -> bytes:
        """The lines that are whole by now, each with its end and none beyond the limit."""
        end = self._last_end(data, 0, len(data)) + 1
        if not end:
            self._keep(data)
            return b""
        whole = self._rest + data[:end] if self._rest else data[:end]
        self._rest = b""
        self._keep(data[end:])
        return self._bounded(whole) if len(whole) > self._limit else whole

    def rest(self) -> bytes:
        """The last line, if it never ended, with an end."""
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""

    def _keep(self, data: bytes) -> None:
        self._rest += data[: self._limit - len(self._rest)]

    def _last_end(self, data: bytes, start: int, stop: int) -> int:
        newline = data.rfind(b"\n", start, stop)
        # Nothing before the newline matters, so only what is behind it is looked at.
        return max(newline, data.rfind(b"\r", max(start, newline), stop)) if self._overwritten else newline

    def _next_end(self, data: bytes, start: int) -> int:
        newline = data.find(b"\n", start)
        if not self._overwritten:
            return newline
        back = data.find(b"\r", start, newline if newline >= 0 else len(data))
        return back if back >= 0 else newline

    def _bounded(self, whole: bytes) -> bytes:
        """Jumps from limit to limit, so that short lines cost next to nothing."""
        pieces = []
        copied = start = 0
        while len(whole) - start > self._limit:
            end = self._last_end(whole, start, start + self._limit + 1)
            if end < 0:
                pieces.append(whole[copied : start + self._limit])
                copied = end = self._next_end(whole, start + self._limit)
            start = end + 1
        return b"".join([*pieces, whole[copied:]]) if pieces else whole
