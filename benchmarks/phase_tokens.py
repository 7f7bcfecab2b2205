"""What phase tokens cost: `python -m benchmarks.phase_tokens [--quick] [--json] [--only PART …]`.

`turns`: a job takes all tokens of an iteration (PULL, COMP, PUSH) and reports its phases, with no other job on its
host; with ten chunks in each COMM, and without.
`yielding`: a primary COMM sends 1 MB at a time to another host, through a link of 1,000 Mbit/s; alone, beside a
secondary one that yields, and beside one that does not. In `gaps` it waits 200 ms after each ten chunks, as for a
server, which the secondary uses. Needs root.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.agent.node.phase_token_server import PhaseTokenServer
from hocket.runtimes.paramserver.phase_tokens import PhaseTokens
from hocket.testing.hosts import network
from hocket.testing.hosts.launcher import Host, Hosts

PARTS = ("turns", "yielding")
MBIT = 1000.0
CHUNK = bytes(1 << 20)
_SEND_BUFFER = 256 << 10  # What is in it goes out although the secondary waits.
_PORT = 7000


class Turns(Struct, frozen=True):
    """All tokens of an iteration."""

    chunks: int  # in each COMM
    iterations: int
    median_us: float
    p99_us: float
    share_of_100_ms: float


class Yielding(Struct, frozen=True):
    """A transfer of the primary COMM, as the median of some."""

    primary: str  # how it sends
    beside: str
    primary_mb: int
    primary_s: float
    slower_by: float  # share of the time alone
    secondary_mb: float  # that went out meanwhile
    link: float  # share of the link's limit that both used


class PhaseTokenCosts(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    turns: list[Turns] = []
    yielding: list[Yielding] = []
    not_measured: str = ""


def main(arguments: list[str]) -> None:
    """Measure, and print tables or one object."""
    if arguments[:1] == ["_process"]:
        _PROCESSES[arguments[1]](*arguments[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phase_tokens", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    chosen = parser.parse_args(arguments)
    why = network.why_no_namespaces() if "yielding" in chosen.only else ""
    found = PhaseTokenCosts(
        " ".join(["python -m benchmarks.phase_tokens", *arguments]),
        machine(),
        turns(300 if chosen.quick else 3000) if "turns" in chosen.only else [],
        yielding(1 if chosen.quick else 5) if "yielding" in chosen.only and not why else [],
        f"yielding: {why}" if why else "",
    )
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: PhaseTokenCosts) -> str:
    """For people."""
    lines = [found.command, f"{found.machine}"]
    for each in found.turns:
        share = f"{each.share_of_100_ms:.2%} of an iteration of 100 ms"
        lines.append(f"{each.chunks:2} chunks: median {each.median_us:.0f} µs, p99 {each.p99_us:.0f} µs, {share}")
    for row in found.yielding:
        said = f"{row.primary:4} beside {row.beside:23} {row.primary_mb} MB in {row.primary_s:.3f} s"
        said += f" ({row.slower_by:+.1%})"
        lines.append(f"{said}, the secondary {row.secondary_mb:.0f} MB, link {row.link:.0%}")
    return "\n".join([*lines, found.not_measured] if found.not_measured else lines)


# -- turns --------------------------------------------------------------------------------------------------


def turns(iterations: int) -> list[Turns]:
    """With a server in a process of its own, as an agent is one."""
    with tempfile.TemporaryDirectory() as folder, _child("server", f"{folder}/tokens") as server:
        assert server.stdout is not None
        server.stdout.readline()
        return [_turns(f"{folder}/tokens", chunks, iterations) for chunks in (0, 10)]


def _turns(path: str, chunks: int, iterations: int) -> Turns:
    took_us = []
    with closing(PhaseTokens(path, "measured", 1)) as tokens:
        for iteration in range(iterations):
            began_s = time.perf_counter()
            for phase in (tokens.comm, tokens.comp, tokens.comm):
                with phase() as comm:
                    for _ in range(chunks if comm is not None else 0):
                        comm.between_chunks()
            tokens.iteration_done(iteration, 0.02, 0.06, 0.02)
            took_us.append((time.perf_counter() - began_s) * 1e6)
    took_us.sort()
    middle = median(took_us)
    return Turns(chunks, iterations, middle, took_us[int(iterations * 0.99)], middle / 1e5)


# -- yielding -----------------------------------------------------------------------------------------------

_WAYS = {"full": (0, 0.0), "gaps": (10, 0.2)}  # chunks, and seconds that it waits after them
_BESIDE = ("nothing", "a secondary that yields", "one that does not")


def yielding(repetitions: int) -> list[Yielding]:
    """Each way of sending beside each, in turn."""
    found = []
    with Hosts(2, MBIT, cores=2.0, mem_mib=1024.0) as hosts:
        for way, chunks in (("full", 60), ("gaps", 30)):
            took: dict[str, list[tuple[float, float]]] = {beside: [] for beside in _BESIDE}
            for _ in range(repetitions):
                for beside in _BESIDE:
                    took[beside].append(_transfer(hosts, way, beside, chunks))
            alone_s = median([seconds for seconds, _ in took["nothing"]])
            for beside, all_of in took.items():
                seconds, other_mb = median([s for s, _ in all_of]), median([mb for _, mb in all_of])
                mb = len(CHUNK) / 1e6
                used = (chunks + other_mb) * mb * 8 / seconds / MBIT
                found.append(
                    Yielding(way, beside, round(chunks * mb), seconds, seconds / alone_s - 1, other_mb * mb, used)
                )
    return found


def _transfer(hosts: Hosts, way: str, beside: str, chunks: int) -> tuple[float, float]:
    """How long the primary took, and how many chunks the other has sent meanwhile."""
    sender, receiver = hosts
    path = str(hosts.folder / "tokens")
    with _on(hosts, receiver, "receiver", receiver.address), _on(hosts, sender, "server", path):
        uses = "/nothing" if beside == _BESIDE[2] else path
        with _on(hosts, sender, "sender", receiver.address, "primary", uses, str(chunks), way) as primary:
            _line(primary)  # It has connected.
            if beside == "nothing":
                _tell(primary)
                _line(primary)
                return float(json.loads(_line(primary))["took_s"]), 0.0
            with _on(hosts, sender, "sender", receiver.address, "secondary", uses, str(20 * chunks), "full") as other:
                _line(other)
                _tell(primary)
                _line(primary)  # It has its token.
                _tell(other)
                _line(other)
                said = json.loads(_line(primary))
                _tell(other)  # It may end.
                sent = [at_s for at_s in json.loads(_line(other))["sent_s"] if at_s <= said["ended_s"]]
                return float(said["took_s"]), float(len(sent))


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, "a process ended too soon"
    return line


def _tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


@contextmanager
def _on(hosts: Hosts, host: Host, *words: str) -> Iterator[subprocess.Popen[str]]:
    child = hosts.start(host, _command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if words[0] != "sender":
            _line(child)
        yield child
    finally:
        child.kill()
        child.communicate()


@contextmanager
def _child(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(_command(*words), stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.phase_tokens", "_process", *words]


# -- the processes ------------------------------------------------------------------------------------------


def _serve(path: str) -> None:
    PhaseTokenServer(path, lambda: None).listen()
    print("up", flush=True)
    time.sleep(3600)


def _receive(address: str) -> None:
    """Read what comes on each connection, and close it when all is there."""

    def read(connection: socket.socket) -> None:
        buffer = bytearray(len(CHUNK))
        with connection:
            while connection.recv_into(buffer):
                pass

    with socket.create_server((address, _PORT)) as listening:
        print("up", flush=True)
        while True:
            threading.Thread(target=read, args=(listening.accept()[0],), daemon=True).start()


def _send(address: str, role: str, path: str, chunks: str, way: str) -> None:
    every, gap_s = _WAYS[way]
    # Without a server, it runs without tokens.
    tokens = PhaseTokens(path, role, 1)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    connection.connect((address, _PORT))
    print("up", flush=True)
    sys.stdin.readline()
    sent_s = []
    with tokens.comm() as comm:
        began_s = time.monotonic()
        print("began", flush=True)
        for chunk in range(int(chunks)):
            comm.between_chunks()
            connection.sendall(CHUNK)
            sent_s.append(time.monotonic())
            if every and chunk % every == every - 1:
                time.sleep(gap_s)
            if role == "secondary" and _is_told():
                break
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # All of it has arrived.
    ended_s = time.monotonic()
    print(json.dumps({"took_s": ended_s - began_s, "ended_s": ended_s, "sent_s": sent_s}), flush=True)


def _is_told() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


_PROCESSES = {"server": _serve, "receiver": _receive, "sender": _send}

if __name__ == "__main__":
    main(sys.argv[1:])
