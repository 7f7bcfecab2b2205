"""The processes that a live controller's folder has, as /proc shows them: told apart by what they are."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hocket.agent.cgroup import PROCESSES, Cgroup, remove_folder
from hocket.agent.node.cgroup_hierarchies import hierarchies

_PATIENCE_S = 120.0  # for what was killed to be gone


class Found(NamedTuple):
    """A living process; `began` tells it from a later one of the same number."""

    kind: str  # controller, agent, sidecar, training, other
    pid: int
    began: int
    job: str = ""
    attempt: int = 0
    command: str = ""

    def lives(self) -> bool:
        """Is it still there?"""
        return _began(self.pid) == self.began

    def kill(self) -> bool:
        """End it with -9; False if it had ended before."""
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(self.pid)
            try:
                if self.lives():
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    return True
            finally:
                os.close(fd)
        return False


def below(root: Path) -> Iterator[Found]:
    """Every process but our own whose command line or environment names the folder; zombies have neither."""
    names = re.compile(re.escape(os.fsencode(root)) + rb"(?![\w.-])").search  # and not a longer name
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            began, command, environ = _began(int(name)), _read(name, "cmdline"), _read(name, "environ")
            # One without a command line is just now becoming another program: it is seen the next time.
            if began is not None and command and (names(command) or names(environ)):
                yield _told_apart(int(name), began, command, environ)


def end_all(root: Path) -> None:
    """Kill every such process, and those that they start meanwhile, until there is none."""
    until = time.monotonic() + _PATIENCE_S
    while left := list(below(root)):
        assert time.monotonic() < until, f"these cannot be killed: {left}"
        for found in left:
            found.kill()
        time.sleep(0.01)
    remove_cgroups(root)


def stands_still(pid: int) -> bool:
    """Is a process stopped by SIGSTOP, or frozen with its cgroup?"""
    if _read(str(pid), "stat").rpartition(b")")[2].split()[:1] == [b"T"]:
        return True
    return any(Cgroup({PROCESSES: there.own}).is_frozen for there in hierarchies(f"/proc/{pid}/cgroup"))


def cgroups_of(root: Path) -> list[Path]:
    """The folders of the cgroups that agents below this folder made."""
    identities = [path.read_text()[:12] for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}identity")]
    folders = (Path(f, f"hocket-{i}") for there in hierarchies() for f in there.upward() for i in identities)
    return [folder for folder in folders if folder.is_dir()]


def remove_cgroups(root: Path) -> None:
    """Those of agents that were killed; what is in them left the folder's processes, and is killed too."""
    until = time.monotonic() + _PATIENCE_S
    for folder in cgroups_of(root):
        while not remove_folder(str(folder)):
            Cgroup({PROCESSES: str(folder)}).kill()
            assert time.monotonic() < until, f"{folder} has processes that cannot be killed"
            time.sleep(0.01)


def _told_apart(pid: int, began: int, command: bytes, environ: bytes) -> Found:
    words = command.split(b"\0")
    variables = dict(entry.partition(b"=")[::2] for entry in environ.split(b"\0"))
    said = command.replace(b"\0", b" ").decode(errors="replace").strip()
    if b"HOCKET_MARK" in variables:
        job, attempt = variables.get(b"HOCKET_JOB", b"").decode(), int(variables.get(b"HOCKET_ATTEMPT", b"0"))
        return Found("training", pid, began, job, attempt, said)
    if b"hocket.agent.sidecar" in command:
        *_, job, attempt = words[-2].decode().split("/")  # of its folder; the last word is empty
        return Found("sidecar", pid, began, job, int(attempt) if attempt.isdecimal() else 0, said)
    if b"hocket.agent.node" in words:
        return Found("agent", pid, began, command=said)
    kind = "controller" if b"hocket" in words and b"up" in words else "other"
    return Found(kind, pid, began, command=said)


def _began(pid: int) -> int | None:
    """When it began, in ticks since boot; None if it has ended."""
    said = _read(str(pid), "stat").rpartition(b")")[2].split()
    return int(said[19]) if said and said[0] not in b"ZX" else None


def _read(pid: str, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
