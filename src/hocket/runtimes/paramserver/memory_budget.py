"""How much memory this process has, as the kernel counts it, and how much more it may have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))  # of versions 1 and 2
_LIMITS = ("memory.limit_in_bytes", "memory.max")
_USES = ("memory.usage_in_bytes", "memory.current")


def resident_bytes() -> int:
    """The memory of this process, now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


def peak_resident_bytes() -> int:
    """The most since `forget_peak`, or since the process began."""
    found = re.search(rb"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_bytes(), re.MULTILINE)
    return int(found[1]) * 1024 if found else resident_bytes()


def forget_peak() -> bool:
    """Count the peak from now on; False: the kernel does not let us, and it stays the peak since the beginning."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def room_in_cgroup_bytes() -> int | None:
    """What the cgroups of this process leave to all that are in them; None where there is no limit."""
    found = [room for folder in _folders() if (room := _room(folder)) is not None]
    return min(found, default=None)


def _folders() -> Iterator[Path]:
    """The folders of this process's cgroup and of those above it."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds in ("", "memory"):
            for root in _ROOTS:
                folder = root / path.lstrip("/")
                while folder.is_relative_to(root):
                    yield folder
                    folder = folder.parent


def _room(folder: Path) -> int | None:
    limit, used = (_first(folder, names) for names in (_LIMITS, _USES))
    if limit is None or used is None or limit >= 1 << 60:
        return None
    try:
        stat = (folder / "memory.stat").read_text(encoding="utf-8")
    except OSError:
        stat = ""
    # Files that were read may be dropped at any time; version 1 says `total_` of those below, too.
    numbers = dict(line.split(" ", 1) for line in stat.splitlines())
    names = ("inactive_file", "active_file")
    cached = sum(int(numbers.get(f"total_{name}", numbers.get(name, "0"))) for name in names)
    return max(0, limit - used + cached)


def _first(folder: Path, names: tuple[str, ...]) -> int | None:
    for name in names:
        try:
            text = (folder / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None
    return None
