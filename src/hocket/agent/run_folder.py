"""A run folder: all that an agent and a sidecar say to each other, so that either may die and come back.

| file | says |
| --- | --- |
| `spec.json` | what to run; written by the agent before it launches the sidecar |
| `control` | a FIFO: what to do, a JSON object a line, from the agent |
| `events.jsonl` | what happened, from the sidecar |
| `log`, `log.N` | what the job printed |
| `answer.json` | of a query: its present answer, from the job |
| `resources.json` | of a query: the threads and the memory that it has now, from the agent |
| `lock` | locked as long as the sidecar lives; holds its process id |
| `sidecar.err` | what the sidecar itself had to complain about |
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import sys
import time

from hocket.agent.process_tree import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen
    from typing import Any


SPEC, CONTROL, EVENTS, STDERR, LOCK = "spec.json", "control", "events.jsonl", "sidecar.err", "lock"
ANSWER, RESOURCES = "answer.json", "resources.json"
LET_GO = "let-go"  # the first fact of a run that stood ready once, was let go, and begins again
LONGEST_ORDER = 1 << 20
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PATIENCE_S = 0.5  # for orders to be taken, and for one that lives to give up its lock
_DYING_S = 30.0  # A process that is killed may hold a lock a while longer, and an agent does that asks whether we live.


# -- for the agent ------------------------------------------------------------------------------------------


def create(folder: str, spec: dict[str, Any]) -> None:
    """Make a run folder that a sidecar can be launched for."""
    os.makedirs(folder, 0o700, exist_ok=True)
    path = os.path.join(folder, SPEC)
    fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # It may hold secrets.
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(spec, file)
    os.rename(f"{path}.part", path)
    _make_control(folder)


def launch(folder: str, secrets: dict[str, str] | None = None) -> Popen[bytes]:
    """Start a sidecar in a session of its own; secrets come to it by a file that has no name and is on no disk."""
    from subprocess import DEVNULL, Popen  # Not in the sidecar.

    # Without `site` and `runpy` a sidecar starts sooner and is smaller, and no setting of the user reaches it.
    program = f"import sys; sys.path.insert(0, {_PACKAGES!r}); from hocket.agent.sidecar import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", program, os.path.abspath(folder)]
    given = DEVNULL
    stderr = os.open(os.path.join(folder, STDERR), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if secrets:
            given = os.memfd_create("secrets")
            os.write(given, json.dumps(secrets).encode())
            os.lseek(given, 0, os.SEEK_SET)
        return Popen(command, stdin=given, stdout=stderr, stderr=stderr, start_new_session=True)
    finally:
        os.close(stderr)
        if given >= 0:
            os.close(given)


def is_running(folder: str) -> bool:
    """Whether a sidecar lives for this folder."""
    try:
        fd = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def send(folder: str, order: dict[str, Any]) -> bool:
    """Tell the sidecar what to do; False if none listens."""
    # The newline before it ends whatever an agent left unfinished when it died.
    line = b"\n" + json.dumps(order).encode() + b"\n"
    try:
        fd = os.open(os.path.join(folder, CONTROL), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
    until = time.monotonic() + _PATIENCE_S
    try:
        while line and time.monotonic() < until:
            try:
                line = line[os.write(fd, line) :]
            except BlockingIOError:  # The pipe is full: it is being emptied, or its reader is stuck.
                time.sleep(0.005)
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return not line


# -- for the sidecar ----------------------------------------------------------------------------------------


def take_secrets(names: list[str]) -> dict[str, str]:
    """The variables of these names, of stdin, which nothing can be read from afterwards. Raises ValueError."""
    if not names:
        return {}
    with os.fdopen(os.dup(0), "rb") as file:
        said = file.read()
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    found: dict[str, str] = json.loads(said) if said else {}
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"secret '{missing[0]}' was not handed over")
    return found


class InUse(Exception):
    """Another process has the folder."""


def take_lock(folder: str, taken: str, patience_s: float) -> int:
    """Take the folder for the rest of this process's life, or raise InUse; `taken` says so, but for the process.

    A holder that lives is waited for `patience_s`.
    """
    fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    began_s = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            lives = holder.isdecimal() and bool(read(f"/proc/{holder}/cmdline"))
            if time.monotonic() - began_s > (patience_s if lives else _DYING_S):
                os.close(fd)
                raise InUse(f"{taken}: process {holder}") from None
            time.sleep(0.02)
    line = f"{os.getpid()}\n".encode()
    os.pwrite(fd, line, 0)  # over what is there, and cut after it: on a full disk there is room for that
    os.ftruncate(fd, len(line))
    return fd


def lock(folder: str) -> int:
    """Take the folder for the rest of this process's life, or raise InUse."""
    return take_lock(folder, f"run folder '{folder}' has a sidecar already", _PATIENCE_S)


class Control:
    """The reading end of the FIFO. Lines that are no orders come out as what is wrong with them."""

    def __init__(self, folder: str) -> None:
        _make_control(folder)
        # For writing too: so it never ends, however many agents come and go.
        self.fd = os.open(os.path.join(folder, CONTROL), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._begun = b""

    def orders(self) -> list[dict[str, Any] | str]:
        """What has come since."""
        try:
            self._begun += os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        *lines, self._begun = self._begun.split(b"\n")
        found = [_order(line) for line in lines if line.strip()]
        if len(self._begun) > LONGEST_ORDER:
            self._begun = b""
            found.append(f"an order is longer than {LONGEST_ORDER} bytes")
        return found


def _order(line: bytes) -> dict[str, Any] | str:
    try:
        order = json.loads(line)
    except (ValueError, RecursionError):
        order = None
    return order if isinstance(order, dict) else f"not an order: {line[:80].decode(errors='replace')!r}"


def _make_control(folder: str) -> None:
    path = os.path.join(folder, CONTROL)
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            raise
