"""`hocket up --ray start`: a Ray of the controller's own on this machine, which outlives the controller's kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep

import msgspec
from msgspec import Struct

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


def local_head(file: str, log: int, gpus: int | None, cores: float | None) -> str:
    """The address of the head that `file` tells of, or of a new one. Raises NoRay."""
    head = _read(file)
    if head is not None and _lives(head):
        return head.address
    with socket.socket() as free:
        free.bind((_HOST, 0))
        address = f"{_HOST}:{free.getsockname()[1]}"
    command = [sys.executable, "-m", _MODULE, "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address", _HOST, "--port", address.rpartition(":")[2], "--include-dashboard", "false"]
    command += ["--object-store-memory", str(_STORE_BYTES)]
    command += [] if gpus is None else ["--num-gpus", str(gpus)]
    command += [] if cores is None else ["--num-cpus", f"{max(1, round(cores))}"]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    _write(file, _Head(started.pid, address))
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
    with suppress(FileNotFoundError):
        os.unlink(file)


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
