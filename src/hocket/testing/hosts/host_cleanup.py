"""Takes down all that a launcher made: processes, namespaces, links, cgroups and its folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hocket.agent.cgroup import PROCESSES, Cgroup, remove_folder
from hocket.agent.node.cgroup_hierarchies import hierarchies
from hocket.agent.process_tree import process, read
from hocket.testing.hosts import network
from hocket.testing.hosts.owner_tag import OwnerTag, read_tag

_CGROUP = "hocket-"  # what the cgroups of a launcher begin with, as those of an agent do
_PATIENCE_S = 60.0  # for what was killed to be gone


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Launchers look for free addresses, and for what others left, one after the other."""
    path = os.path.join(tempfile.gettempdir(), f"hocket-hosts-{os.getuid()}.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def folder_of(tag: OwnerTag) -> str:
    """Where a launcher keeps its files; the name is in the environment of whatever it starts."""
    return os.path.join(tempfile.gettempdir(), tag.name)


def abandoned() -> list[OwnerTag]:
    """Launchers that have ended and left something."""
    names = [os.path.basename(folder) for folder in _all_cgroups()]
    with suppress(OSError):
        names += os.listdir(tempfile.gettempdir())
    found = network.owners() | {tag for name in names if (tag := read_tag(name)) is not None}
    return sorted(tag for tag in found if not tag.lives)


def take_down(tag: OwnerTag) -> None:
    """Kill and remove all of a launcher; RuntimeError if a process cannot be killed."""
    until_s = time.monotonic() + _PATIENCE_S
    while left := _processes(tag):
        if time.monotonic() > until_s:
            raise RuntimeError(f"processes {left} of launcher '{tag}' cannot be killed")
        for pid in left:
            _kill(pid, tag)
        time.sleep(0.01)
    for folder in _cgroups(tag):
        while not remove_folder(folder) and time.monotonic() < until_s:
            Cgroup({PROCESSES: folder}).kill()
            time.sleep(0.01)
    if not network.why_no_namespaces():
        network.remove(tag)
    shutil.rmtree(folder_of(tag), ignore_errors=True)


def _all_cgroups() -> list[str]:
    found = []
    for above in {folder for there in hierarchies() for folder in there.upward()}:
        with suppress(OSError):
            found += [os.path.join(above, name) for name in os.listdir(above) if name.startswith(_CGROUP)]
    return found


def _cgroups(tag: OwnerTag) -> list[str]:
    return [folder for folder in _all_cgroups() if os.path.basename(folder) == f"{_CGROUP}{tag}"]


def _processes(tag: OwnerTag) -> list[int]:
    """All but ourselves that are in its cgroups, or have its name in their command line or environment."""
    found = {pid for folder in _cgroups(tag) for pid in Cgroup({PROCESSES: folder}).processes()}
    found |= {int(name) for name in os.listdir("/proc") if name.isdecimal() and _bears(int(name), tag)}
    return sorted(pid for pid in found - {os.getpid()} if process(pid) is not None)


def _bears(pid: int, tag: OwnerTag) -> bool:
    name = tag.name.encode()
    return any(name in (read(f"/proc/{pid}/{file}") or b"") for file in ("cmdline", "environ"))


def _kill(pid: int, tag: OwnerTag) -> None:
    """Kill a process, but not another that was given its number since we looked."""
    with suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if _bears(pid, tag) or any(pid in Cgroup({PROCESSES: each}).processes() for each in _cgroups(tag)):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
