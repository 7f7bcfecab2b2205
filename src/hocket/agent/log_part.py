"""A part of what a job printed, as somebody asked for it: by its place in the whole output, or from the end."""

from __future__ import annotations

import os
from typing import NamedTuple

from hocket.agent.logs import log_files, read_log
from hocket.agent.protocol import ReadLog
from hocket.agent.state_folder import StateFolder

_MOST_BYTES = 4 << 20  # in one answer; orders wait while it is sent


class LogPart(NamedTuple):
    """Where it begins: later than asked for when that was removed, and the end when there is no more."""

    number: int  # of the run; 0 if nothing is kept of it
    offset: int
    data: bytes


def log_part(state: StateFolder, order: ReadLog) -> LogPart:
    """Read it, across as many files as it takes."""
    kept = state.kept_run(order.job, order.number)
    if kept is None:
        return LogPart(0, 0, b"")
    number, folder = kept
    try:
        return LogPart(number, *_read(folder, order.offset, min(max(order.limit, 0), _MOST_BYTES)))
    except OSError:  # It was forgotten under our eyes.
        return LogPart(0, 0, b"")


def _read(folder: str, offset: int, limit: int) -> tuple[int, bytes]:
    end = _end(folder)
    place = min(end + offset, end) if offset < 0 else min(offset, end)
    begin, data = read_log(folder, max(place, 0), limit)
    while len(data) < limit:
        next_begin, more = read_log(folder, begin + len(data), limit - len(data))
        if not more or next_begin != begin + len(data):  # What comes next was removed meanwhile: that is another part.
            break
        data += more
    return begin, data


def _end(folder: str) -> int:
    start, path = log_files(folder)[-1]
    try:
        return start + os.stat(path).st_size
    except FileNotFoundError:
        return start
