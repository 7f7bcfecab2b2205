"""How many of a run's reports the controller has acknowledged: the file `heard` in the run folder, kept by the agent.

It has the same length at all times and is written over in one call, so that neither `kill -9` nor a full disk can
spoil it. Should the machine crash and bring an older one back, some reports are sent twice.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct, field

_NAME = "heard"
_LENGTH = 160


class AckCursor(Struct):
    """How far the controller has acknowledged `events.jsonl`, and what the agent itself reports of the run."""

    n: int = 0  # of the last report
    offset: int = 0  # in bytes, after that report's line
    lost_s: float = 0.0  # when the sidecar was found dead, in seconds since 1970; 0 if it was not
    lost_acked: bool = field(default=False, name="lost_heard")  # as all versions write it
    over: bool = False  # all of it is acknowledged, and no more will come


def read_cursor(folder: str) -> AckCursor:
    """The cursor of a run; at its beginning if that is not known."""
    try:
        with open(os.path.join(folder, _NAME), "rb") as file:
            return msgspec.json.decode(file.read(), type=AckCursor)
    except (OSError, msgspec.DecodeError):
        return AckCursor()


def write_cursor(folder: str, cursor: AckCursor) -> None:
    """Keep it; OSError if the file is new and there is no space for it."""
    fd = os.open(os.path.join(folder, _NAME), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, msgspec.json.encode(cursor).ljust(_LENGTH - 1) + b"\n", 0)
    finally:
        os.close(fd)
