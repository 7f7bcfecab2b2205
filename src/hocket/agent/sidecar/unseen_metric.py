"""Notices that what a job's criterion is about was not seen in the first minute of an attempt."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.progress.reader import Reader

_KEPT = 4096  # bytes of output
_LINES = 3
_LONGEST = 120  # characters of a line
_COUNTS = ("epochs", "steps")


class UnseenMetric:
    """Keeps the end of the output until it is known whether the metric, or a count of epochs or steps, is seen."""

    def __init__(self, awaited: str, limit_s: float) -> None:
        self._awaited = awaited
        self._limit_s = limit_s
        self._end = b""
        self.due_s: float | None = None  # when to look; None once there is nothing to look for

    def begin(self, now_s: float) -> None:
        """The job's process runs from now on."""
        self.due_s = now_s + self._limit_s if self._awaited else None

    def printed(self, data: bytes) -> None:
        """The job printed this."""
        if self.due_s is not None:
            self._end = (self._end + data[-_KEPT:])[-_KEPT:]

    def look(self, now_s: float, reader: Reader | None) -> dict[str, object] | None:
        """What to report: the awaited, what was read instead, and the last lines; None if it was seen, or not due."""
        if self.due_s is None or now_s < self.due_s:
            return None
        self.due_s = None
        end, self._end = self._end, b""
        if reader is not None and (reader.is_counted if self._awaited in _COUNTS else self._awaited in reader.names):
            return None
        read = sorted(reader.names)[:20] if reader is not None else []
        return {"metric": self._awaited, "after_s": self._limit_s, "read": read, "lines": _last_lines(end)}


def _last_lines(end: bytes) -> list[str]:
    """The last lines that are not empty, as a terminal would show them, shortened."""
    text = end.decode("utf-8", "replace")
    shown = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    kept = ["".join(c if c.isprintable() else " " for c in line).strip() for line in shown]
    lines = [line for line in kept if line][-_LINES:]
    return [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines]
