"""Progress bars: lines that are overwritten again and again, of which only the last state counts."""

from __future__ import annotations

from collections.abc import Callable

TRANSIENT = b"\r"  # begins a line that was overwritten later: its epoch has begun, but its values are not the last


class Bars:
    """Follows the line that is being overwritten.

    Of a bar, two states count: the first that names an epoch, because the one before is over then, and the last. A bar
    that goes on with the next epoch in the same line counts as a new one.
    """

    def __init__(self, epoch_of: Callable[[bytes], object]) -> None:
        self._epoch_of = epoch_of  # None for a state that names no epoch
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
