"""The facts of one attempt: `events.jsonl` in its run folder, appended by the sidecar and read by the agent (`tail`).

One JSON object a line: `n` (1, 2, 3 …), `at` (seconds since 1970), `event`, and what belongs to it. A line counts once
its newline is there.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_WAITING = 4096
_CAN_BE_MISSED = ("use", "progress", "warning")


class Events:
    """The writer. It never raises for want of space: what cannot be written waits, in order."""

    def __init__(self, path: str) -> None:
        """Begin the file, or go on with one; what was cut in the middle of a line is taken off."""
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.before, self._size = _whole(self._all())
        self._n = self.before[-1]["n"] if self.before else 0
        self._waiting: list[bytes] = []
        if self._size < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, self._size)

    def add(self, event: str, **facts: Any) -> None:
        """Append one fact."""
        if self._waiting and (event == "use" or (len(self._waiting) >= _MOST_WAITING and event in _CAN_BE_MISSED)):
            return
        self._n += 1
        fact = {"n": self._n, "at": round(time.time(), 6), "event": event, **facts}
        self._waiting.append(json.dumps(fact, separators=(",", ":")).encode() + b"\n")
        self.flush()

    def flush(self) -> bool:
        """Write what waits; False while the disk does not take it."""
        while self._waiting:
            line = self._waiting[0]
            try:
                written = os.write(self._fd, line)
                if written < len(line):
                    os.ftruncate(self._fd, self._size)
                    return False
            except OSError:
                return False
            self._size += written
            del self._waiting[0]
        return True

    def sync(self) -> None:
        """Wait until the facts are on disk."""
        os.fsync(self._fd)

    def _all(self) -> bytes:
        data = b""
        while block := os.read(self._fd, 1 << 20):
            data += block
        return data


def _whole(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The facts that are whole, up to the first that is not, and how many bytes they take."""
    found: list[dict[str, Any]] = []
    begin = 0
    while (end := data.find(b"\n", begin)) >= 0:
        try:
            fact = json.loads(data[begin:end])
        except ValueError:
            break
        if not isinstance(fact, dict) or not isinstance(fact.get("n"), int):
            break
        found.append(fact)
        begin = end + 1
    return found, begin
