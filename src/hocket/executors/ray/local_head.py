"""`hocket up --ray start`: a Ray of the controller's own on this machine, which outlives the controller's kill.

Ray listens on the machine's network address whatever is asked for, and runs what it is told to. So it gets a token,
which from Ray 2.52 on is needed to call it. And it has a folder of its own, for it shall not become the Ray that others
on this machine find by `auto`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from secrets import token_hex
from time import monotonic, sleep

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.agent.process_tree import process, read
from hocket.executors.ray.connection import NoRay

_HOST = "127.0.0.1"
_START_S = 120.0
_STOP_S = 30.0
_STORE_BYTES = 100 << 20  # for objects, of which agents have none
_MODULE = "ray.scripts.scripts"


class _Head(Struct, frozen=True):
    pid: int
    address: str
    folder: str  # of Ray's own files, which Ray makes writable for all
    token_file: str

    @property
    def environment(self) -> dict[str, str]:
        """What those need that call it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token_file}


def local_head(file: str, log: int, gpus: int | None, cores: float | None) -> str:
    """The address of the head that `file` tells of, or of a new one; this process may call it. Raises NoRay."""
    head = _read(file)
    if head is not None and _lives(head):
        os.environ |= head.environment
        return head.address
    stop_local_head(file)  # what one that died has left
    with socket.socket() as free:
        free.bind((_HOST, 0))
        address = f"{_HOST}:{free.getsockname()[1]}"
    folder = tempfile.mkdtemp(prefix="hocket-ray-", dir="/tmp")  # Paths of sockets in it must be short.
    head = _Head(0, address, folder, f"{file}.token")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(head.token_file, flags, 0o600), "w", encoding="ascii") as token:
        token.write(token_hex(32))
    os.environ |= head.environment
    command = [sys.executable, "-m", _MODULE, "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address", _HOST, "--port", address.rpartition(":")[2], "--include-dashboard", "false"]
    command += ["--object-store-memory", str(_STORE_BYTES), "--temp-dir", folder]
    command += [] if gpus is None else ["--num-gpus", str(gpus)]
    command += [] if cores is None else ["--num-cpus", f"{max(1, round(cores))}"]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    _write(file, replace(head, pid=started.pid))
    until = monotonic() + _START_S
    while monotonic() < until and started.poll() is None:
        with suppress(OSError):
            socket.create_connection((_HOST, int(address.rpartition(":")[2])), 1.0).close()
            return address
        sleep(0.1)
    stop_local_head(file)
    raise NoRay("Ray does not start on this machine; the controller's log has what it said")


def stop_local_head(file: str) -> None:
    """End it, and what belongs to it."""
    head = _read(file)
    if head is not None and _lives(head):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(head.pid, number) if number == signal.SIGKILL else os.kill(head.pid, number)
            until = monotonic() + _STOP_S
            while _lives(head) and monotonic() < until:
                sleep(0.05)
    if head is not None:
        shutil.rmtree(head.folder, ignore_errors=True)
        for path in (head.token_file, file):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _lives(head: _Head) -> bool:
    return process(head.pid) is not None and _MODULE.encode() in (read(f"/proc/{head.pid}/cmdline") or b"")


def _read(file: str) -> _Head | None:
    try:
        with open(file, "rb") as kept:
            return msgspec.json.decode(kept.read(), type=_Head)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(file: str, head: _Head) -> None:
    fd = os.open(f"{file}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as new:
        new.write(msgspec.json.encode(head))
    os.replace(f"{file}.new", file)
