"""Whether a job that broke may have broken for want of space."""

from __future__ import annotations

import os

_LITTLE = 1 << 20  # bytes: no checkpoint is so small that this is enough for long


def lack_of_space(folder: str | None) -> str:
    """What to tell a user whose job broke when there was no space in its checkpoint folder; empty if there was."""
    try:
        found = os.statvfs(folder) if folder is not None else None
    except OSError:
        return ""
    if found is None:
        return ""
    free = found.f_bavail * found.f_frsize
    if free >= _LITTLE and (found.f_favail or not found.f_files):
        return ""
    return f"there is no space to save in: its checkpoint folder '{folder}' has {free // 1024:,} KiB left"
