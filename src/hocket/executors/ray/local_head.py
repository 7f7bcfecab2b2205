"""`hocket up --ray start`: a Ray of the controller's own on this machine, which outlives the controller's kill.

It has one node, or several (`--ray-nodes`), that one may see here what becomes of jobs when a node is lost.

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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from glob import glob
from secrets import token_hex
from time import monotonic, sleep
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.agent.node.devices import VISIBLE, Devices, discover
from hocket.agent.process_tree import process, read
from hocket.executors.ray.connection import NoRay

_HOST = "127.0.0.1"
_START_S = 120.0
_STOP_S = 30.0
_STORE_BYTES = 100 << 20  # for objects, of which agents have none
_MODULE = "ray.scripts.scripts"


class LocalNodes(Struct, frozen=True):
    """The nodes of a Ray on this machine."""

    count: int = 1
    gpus: int | None = None  # of each; None: those that Ray finds
    cores: float | None = None  # of each


class _Start(NamedTuple):
    options: list[str]  # of `ray start`
    environment: dict[str, str]


def starts(nodes: LocalNodes, machine: Devices) -> list[_Start]:
    """How each node is started. With several, each has its share of cores, memory and GPUs. Raises NoRay."""
    gpus, cores, count = nodes.gpus, nodes.cores, nodes.count
    if count == 1:
        options = [] if gpus is None else ["--num-gpus", str(gpus)]
        return [_Start(options + ([] if cores is None else ["--num-cpus", f"{max(1, round(cores))}"]), {})]
    there = [str(gpu.index) for gpu in machine.gpus]
    each = len(there) // count if gpus is None else gpus
    if there and each * count > len(there):
        raise NoRay(f"--ray-nodes {count} with --gpus {each} needs {each * count} GPUs, and {len(there)} are here")
    each_cores = max(1, round(machine.node.cores / count if cores is None else cores))
    mem_bytes = int(machine.node.mem_mib / count) * (1 << 20) - _STORE_BYTES
    options = ["--num-gpus", str(each), "--num-cpus", str(each_cores), "--memory", str(mem_bytes)]
    options += ["--dashboard-agent-listen-port", "0"]  # Ray has the same one for all nodes otherwise.
    own = [{VISIBLE: ",".join(there[n * each : (n + 1) * each])} if there else {} for n in range(count)]
    return [_Start([*options, "--node-name", f"n{n}"], environment) for n, environment in enumerate(own, 1)]


class LocalHead(Struct, frozen=True):
    """What is kept of a Ray on this machine: to call it, and to end it."""

    pid: int  # of the head's `ray start`, which leads a process group; so do those of other nodes
    address: str
    folder: str  # of Ray's own files, which Ray makes writable for all
    token_file: str
    others: dict[str, int] = {}  # name of each other node → pid

    @property
    def environment(self) -> dict[str, str]:
        """What those need that call it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token_file}


def local_head(file: str, log: int, nodes: LocalNodes) -> str:
    """The address of the head that `file` tells of, or of a new one; this process may call it. Raises NoRay."""
    head = read_local_head(file)
    if head is not None and _lives(head.pid):
        os.environ |= head.environment
        return head.address
    stop_local_head(file)  # what is left of a head that died
    first, *others = starts(nodes, discover("here", visible=os.environ.get(VISIBLE)))
    with socket.socket() as free:
        free.bind((_HOST, 0))
        address = f"{_HOST}:{free.getsockname()[1]}"
    folder = tempfile.mkdtemp(prefix="hocket-ray-", dir="/tmp")  # Paths of sockets in it must be short.
    head = LocalHead(0, address, folder, f"{file}.token")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(head.token_file, flags, 0o600), "w", encoding="ascii") as token:
        token.write(token_hex(32))
    os.environ |= head.environment
    port = address.rpartition(":")[2]
    options = ["--head", "--port", port, "--include-dashboard", "false", "--temp-dir", folder]
    started = _start(first, options, log)
    head = replace(head, pid=started.pid)
    _write(file, head)
    if not _await(lambda: _listens(int(port)), started):
        stop_local_head(file)
        raise NoRay("Ray does not start on this machine; the controller's log has its output")
    for number, other in enumerate(others, 2):
        # One after the other: they look for a free name of a socket, and two would find the same.
        if not _await(partial(_has_sockets, folder, number - 1), started):
            stop_local_head(file)
            raise NoRay(f"node n{number - 1} does not start on this machine; the controller's log has its output")
        started = _start(other, ["--address", address], log)
        head = replace(head, others={**head.others, f"n{number}": started.pid})
        _write(file, head)
    return address


def _start(node: _Start, options: list[str], log: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", _MODULE, "start", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address", _HOST, "--object-store-memory", str(_STORE_BYTES), *options, *node.options]
    env = {**os.environ, **node.environment}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=env)


def _await(condition: Callable[[], bool], started: subprocess.Popen[bytes]) -> bool:
    """Wait for it; False if the process ends before, or takes too long."""
    until = monotonic() + _START_S
    while monotonic() < until and started.poll() is None:
        if condition():
            return True
        sleep(0.1)
    return False


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection((_HOST, port), 1.0).close()
        return True
    return False


def _has_sockets(folder: str, count: int) -> bool:
    """Are there those of so many nodes?"""
    return len(glob(os.path.join(folder, "session_latest", "sockets", "raylet*"))) >= count


def stop_local_head(file: str) -> None:
    """End it, and what belongs to it."""
    head = read_local_head(file)
    if head is None:
        return
    pids = [*head.others.values(), head.pid]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in filter(_lives, pids):
            with suppress(ProcessLookupError):
                os.killpg(pid, number) if number == signal.SIGKILL else os.kill(pid, number)
        until = monotonic() + _STOP_S
        while any(map(_lives, pids)) and monotonic() < until:
            sleep(0.05)
    shutil.rmtree(head.folder, ignore_errors=True)
    for path in (head.token_file, file):
        with suppress(FileNotFoundError):
            os.unlink(path)


def lose_node(head: LocalHead, name: str) -> None:
    """End Ray on a node that is not the head's, with -9; what ran there by our agent notices that."""
    if _lives(head.others[name]):
        with suppress(ProcessLookupError):
            os.killpg(head.others[name], signal.SIGKILL)


def _lives(pid: int) -> bool:
    return process(pid) is not None and _MODULE.encode() in (read(f"/proc/{pid}/cmdline") or b"")


def read_local_head(file: str) -> LocalHead | None:
    """What a home tells of; None if it has no Ray of its own."""
    try:
        with open(file, "rb") as kept:
            return msgspec.json.decode(kept.read(), type=LocalHead)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(file: str, head: LocalHead) -> None:
    fd = os.open(f"{file}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as new:
        new.write(msgspec.json.encode(head))
    os.replace(f"{file}.new", file)
