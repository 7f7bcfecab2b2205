"""PULL and PUSH of 100 MB: within a host beside memcpy, and between two hosts by TCP beside a plain socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.machine import ROOT, median, table
from hocket.paramserver import Algorithm, DataBlock, EpochEnd, PhaseTimes, train

_FACTS_MS = {"within a host": 21.0, "between hosts": 110.0}  # shared memory and TCP, of the project's own measurements
_GOAL_MS = 25.0


class Sending(Algorithm):
    """A model of so many bytes, all of which is pulled and updated; nothing is computed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._update = np.ones(size // 4, np.float32)

    def init(self, rng: np.random.Generator) -> Mapping[str, Any]:  # noqa: ARG002
        """All zeros."""
        return {"model": np.zeros(self._size // 4, np.float32)}

    def compute(self, block: DataBlock, params: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Always the same."""
        return {"model": self._update}

    def objective(self, block: DataBlock, params: Mapping[str, Any]) -> float:  # noqa: ARG002
        """How often it was updated: nothing may be lost."""
        return float(params["model"][0] + params["model"][-1])


def run(size: int, iterations: int, hosts: int, workers: int, cpu_s: list[float] | None = None) -> PhaseTimes:
    """The median times of an iteration on this host; `cpu_s` is told this process's CPU time at the end of each."""
    blocks = [DataBlock(f"block {host}", {}) for host in range(hosts)]
    times: list[PhaseTimes] = []

    def note(end: EpochEnd) -> None:
        times.append(end.times)
        if cpu_s is not None:
            cpu_s.append(time.process_time())

    trained = train(
        Sending(size), blocks, workers=workers, epochs=iterations, objective_every=iterations, on_epoch=note
    )  # fmt: skip
    assert trained.objective == 2 * iterations * hosts * hosts, trained.objective
    if not times:
        return PhaseTimes()  # Host 0 measures.
    return PhaseTimes(median([of.pull_s for of in times]), 0.0, median([of.push_s for of in times]))


def measured(quick: bool) -> dict[str, Any]:
    """All of it, in milliseconds."""
    size, iterations = (10_000_000, 5) if quick else (100_000_000, 20)
    cores = len(os.sched_getaffinity(0))
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    within = {str(workers): _shown(run(size, iterations, 1, workers)) for workers in sorted({1, cores})}
    return {
        "bytes": size,
        "memcpy_ms": _best_ms(lambda: np.copyto(target, source)),
        "add_ms": _best_ms(lambda: np.add(source, target, out=target)),
        "socket_ms": _socket_ms(size),
        "within_a_host": within,
        "two_hosts": _two_hosts(size, iterations),
    }


def text(found: dict[str, Any]) -> list[str]:
    """As tables."""
    memcpy, size = found["memcpy_ms"], found["bytes"] / 1e6
    rows = [
        (f"within a host, {workers} worker{'' if workers == '1' else 's'}", *_row(of, memcpy))
        for workers, of in found["within_a_host"].items()
    ]
    rows.append(("between two hosts (half is remote)", *_row(found["two_hosts"], memcpy)))
    titles = ("", "PULL ms", "PUSH ms", "both ms", "× memcpy")
    return [
        f"PULL AND PUSH of {size:g} MB (goal within a host: {_GOAL_MS:g} ms for 100 MB, on the machine named below)",
        *table(titles, rows),
        f"  memcpy of {size:g} MB: {memcpy:.1f} ms; a plain TCP socket: {found['socket_ms']:.1f} ms one way, so "
        f"{2 * found['socket_ms']:.1f} ms for what two hosts send each other",
        f"  on the design's machine, before it was built (100 MB): {_FACTS_MS['within a host']:g} ms by shared memory, "
        f"{_FACTS_MS['between hosts']:g} ms by TCP",
    ]


def _row(times: dict[str, float], memcpy_ms: float) -> tuple[str, ...]:
    both = times["pull_ms"] + times["push_ms"]
    return f"{times['pull_ms']:.1f}", f"{times['push_ms']:.1f}", f"{both:.1f}", f"{both / memcpy_ms:.2f}"


def _shown(times: PhaseTimes) -> dict[str, float]:
    return {"pull_ms": times.pull_s * 1e3, "push_ms": times.push_s * 1e3}


def _best_ms(work: Callable[[], Any]) -> float:
    """The median of several."""
    took = []
    for _ in range(7):
        began_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - began_s)
    return median(took) * 1e3


def _socket_ms(size: int) -> float:
    """So many bytes from one thread to another, by TCP."""
    source, target = memoryview(bytearray(size)), memoryview(bytearray(size))
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _address = server.accept()

    def once() -> None:
        thread = threading.Thread(target=sender.sendall, args=(source,))
        thread.start()
        left = target
        while len(left):
            left = left[receiver.recv_into(left) :]
        thread.join()

    with sender, receiver:
        return _best_ms(once)


def _two_hosts(size: int, iterations: int) -> dict[str, float]:
    """Two processes; what host 0 measures."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = f"from benchmarks.paramserver.pull_push import tell; tell({size}, {iterations})"
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            env={
                **os.environ, "NNODES": "2", "NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [host.communicate()[0] for host in hosts]
    if any(host.returncode for host in hosts):
        raise SystemExit("benchmarks: a host has failed")
    found: dict[str, float] = json.loads(said[0])
    return found


def tell(size: int, iterations: int, hosts: int = 2) -> None:
    """Print what `run` measures as one of some hosts, and what a MB that it sends costs it of CPU time, in ms.

    That is with all that comes in meanwhile, which is as much, and with adding it up.
    """
    cpu_s: list[float] = []
    shown = _shown(run(size, iterations, hosts, 1, cpu_s))
    sent_mb = 2 * size * (hosts - 1) / hosts / 1e6
    each_s = [after - before for before, after in pairwise(cpu_s[:-1])]  # The last has the objective.
    print(json.dumps({**shown, "cpu_ms_per_mb": median(each_s) * 1e3 / sent_mb if each_s else 0.0}))
