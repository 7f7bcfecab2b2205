"""Whole lines from bytes that come in any pieces."""

from __future__ import annotations

from collections.abc import Callable


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


TRANSIENT = b"\r"  # begins a line that was overwritten later: its epoch has begun, but its values are not the last


class Bars:
    """Follows the line that is being overwritten.

    Of a bar, two states count: the first that names an epoch, because the one before is over then, and the last. A bar
    that goes on with the next epoch in the same line counts as a new one. Bars that name no epoch count in their last
    state, unless they shall be `read_while_moving`: then in the last of each piece of output, too.
    """

    def __init__(self, epoch_of: Callable[[bytes], object], read_while_moving: Callable[[], bool]) -> None:
        self._epoch_of = epoch_of  # None for a state that names no epoch
        self._read_while_moving = read_while_moving  # bars that name none
        self._epoch: object = None
        self._named = self._unnamed = b""  # the last states that do and do not name an epoch

    def collapse(self, text: bytes) -> bytes:
        """Lines and states of bars (ended by a newline or a carriage return) as lines."""
        if b"\r" not in text and not (self._named or self._unnamed):
            return text
        lines: list[bytes] = []
        *ended, under_way = text.split(b"\n")
        for line in ended:
            if self._named or self._unnamed or b"\r" in line:
                self._overwrite(line, lines)
                self._settle(lines)
                self._epoch = None
            else:
                lines.append(line)
        self._overwrite(under_way, lines)
        if self._unnamed and self._read_while_moving():
            lines.append(TRANSIENT + self._unnamed)
        lines.append(b"")
        return b"\n".join(lines)

    def _overwrite(self, line: bytes, lines: list[bytes]) -> None:
        for state in line.split(b"\r"):
            if not state or state.isspace():
                continue
            epoch = self._epoch_of(state)
            if epoch is None:
                self._unnamed = state
                continue
            if epoch != self._epoch:
                self._settle(lines)
                lines.append(TRANSIENT + state)
                self._epoch = epoch
            self._named = state

    def _settle(self, lines: list[bytes]) -> None:
        lines += [state for state in (self._named, self._unnamed) if state]
        self._named = self._unnamed = b""
