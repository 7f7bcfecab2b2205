"""Which attempt of a job its checkpoint folder belongs to: a file beside the folder, with the attempt's number.

An attempt that finds a larger number there than its own is stale: the controller has started the job elsewhere. So
where checkpoints are on shared storage, a machine that was cut off or suspended for long learns that even if it cannot
reach the controller. Every later attempt has a larger number.
"""

from __future__ import annotations

import json
import os

_LARGEST = 4096  # bytes that are read


class AttemptFile:
    """The number of one attempt. Files that cannot be read or written fence nothing."""

    def __init__(self, path: str | None, job: str, number: int) -> None:
        self._path, self._job, self._number = path, job, number

    def newer(self) -> int:
        """The number of a later attempt of the job, which has the folder now; 0 if there is none.

        If the file names an earlier one, or another job, the folder is taken over: of two attempts that write at the
        same time, the later one corrects the other at its next look.
        """
        if self._path is None:
            return 0
        job, number = _read(self._path)
        if job == self._job and number >= self._number:
            return number if number > self._number else 0
        self._write()
        return 0

    def _write(self) -> None:
        assert self._path is not None
        part = f"{self._path}.{self._number}.part"
        try:
            new = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(new, "w", encoding="utf-8") as file:
                json.dump({"job": self._job, "attempt": self._number}, file)
            os.replace(part, self._path)
        except OSError:  # The disk is full, or read only.
            return


def _read(path: str) -> tuple[str, int]:
    """The job and the number of its attempt; 0 if there is no such file, or nonsense in it."""
    try:
        with open(path, "rb") as file:
            kept = json.loads(file.read(_LARGEST))
        job, number = kept["job"], kept["attempt"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", 0
    is_number = isinstance(number, int) and not isinstance(number, bool)
    return (job, number) if isinstance(job, str) and is_number else ("", 0)
