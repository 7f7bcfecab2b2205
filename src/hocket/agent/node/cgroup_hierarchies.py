"""Which hierarchies of cgroups this machine has, and where this process is in each: read from /proc."""

from __future__ import annotations

import os
from typing import NamedTuple

_OWN = "/proc/self/cgroup"
_MOUNTS = "/proc/self/mountinfo"


class Hierarchy(NamedTuple):
    """One that is mounted."""

    controllers: frozenset[str]  # of version 1; in version 2 each cgroup says which ones it has
    is_v2: bool
    mount: str
    own: str  # the folder of this process's cgroup

    def upward(self) -> list[str]:
        """The folder of our own cgroup, and of each above it."""
        found = [self.own]
        while found[-1] != self.mount:
            found.append(os.path.dirname(found[-1]))
        return found


def hierarchies(own: str = _OWN, mounts: str = _MOUNTS) -> list[Hierarchy]:
    """All that are mounted and have us in them."""
    none: frozenset[str] = frozenset()
    paths: dict[frozenset[str], str] = {}
    for line in _lines(own):
        _number, names, path = line.split(":", 2)
        paths[frozenset(names.split(",")) if names else none] = path
    found: dict[frozenset[str], Hierarchy] = {}
    for line in _lines(mounts):
        before, _, after = line.partition(" - ")
        root, mount = (_unescaped(word) for word in before.split()[3:5])
        kind, _device, options = after.split()[:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        controllers = next((c for c in paths if c and c <= set(options.split(","))), none)
        if bool(controllers) != (kind == "cgroup") or controllers not in paths:
            continue
        if (folder := _folder(root, mount, paths[controllers])) is not None:
            found.setdefault(controllers, Hierarchy(controllers, kind == "cgroup2", mount, folder))
    return list(found.values())


def _folder(root: str, mount: str, path: str) -> str | None:
    """Where a cgroup is, of which a part of the hierarchy from `root` on is mounted; None if it is not in that part."""
    below = os.path.relpath(path, root)
    if below == ".":
        return mount
    return None if below.split("/")[0] == ".." else os.path.join(mount, below)


def _unescaped(path: str) -> str:
    for code in ("040", "011", "012", "134"):
        path = path.replace(f"\\{code}", chr(int(code, 8)))
    return path


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []
