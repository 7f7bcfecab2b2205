"""How fast progress readers go over what a job prints: `python -m benchmarks.progress [--quick] [--json]`.

Bytes come in pieces of 64 KiB, as a pipe gives them. CPU time of one process; the best of several runs, because others
may use the machine, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine
from hocket.agent.progress import open_reader

PIECE = 1 << 16  # bytes
WORDS = b"the worker process started reading its shard from storage and waits for the network while data is loaded"


class Rate(Struct, frozen=True):
    """One kind of output, by one reader."""

    output: str
    mb_per_s: float
    goal_mb_per_s: float | None
    reports: int


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    rates: list[Rate]


def plain(size: int) -> bytes:
    """Lines with time stamps and numbers, as a log has them, and no metric."""
    lines = [
        b"2026-01-01 12:%02d:%02d,%03d INFO %s %d\n" % (n // 60 % 60, n % 60, n % 1000, WORDS[n % 40 : n % 40 + 50], n)
        for n in range(10_000)
    ]
    return _long(b"".join(lines), size)


def bars(size: int, description: bytes) -> bytes:
    """What tqdm prints for epochs of a thousand steps."""
    states = []
    for n in range(20_000):
        step = n % 1000 + 1
        bar = ("█" * (step // 100)).ljust(10).encode()
        name = description.replace(b"N", b"%d" % (n // 1000 + 1))
        state = b"\r%s%3d%%|%s| %d/1000 [00:%02d<00:10, 98.32it/s, loss=%.3f]" % (
            name,
            step // 10,
            bar,
            step,
            step % 60,
            1 / step,
        )
        states.append(state + (b"\n" if step == 1000 else b""))
    return _long(b"".join(states), size)


def steps(size: int, named: bool = True) -> bytes:
    """A line for each step, and each with metrics; with or without the name of its epoch."""
    lines = [
        (b"Epoch [%d/100], " % (n // 600 + 1) if named else b"")
        + b"Step [%d/600], Loss: %.4f, lr: 0.001\n" % (n % 600 + 1, 9 / (n + 9))
        for n in range(20_000)
    ]
    return _long(b"".join(lines), size)


def objects(size: int) -> bytes:
    """A JSON object for each step."""
    lines = [b'{"epoch": %d, "step": %d, "loss": %.4f}\n' % (n // 600 + 1, n, 9 / (n + 9)) for n in range(20_000)]
    return _long(b"".join(lines), size)


def _long(text: bytes, size: int) -> bytes:
    return (text * (size // len(text) + 1))[:size]


def rate(
    output: str, config: dict[str, Any], text: bytes, goal: float | None = None, before: bytes = b"", runs: int = 3
) -> Rate:
    """The best of several runs, after the reader has been given what stands `before`."""
    best_s, reports = float("inf"), 0
    for _run in range(runs):
        reader = open_reader(config, ".", "")
        reader.feed(before)
        begun = time.process_time()
        reports = sum(len(reader.feed(text[place : place + PIECE])) for place in range(0, len(text), PIECE))
        best_s = min(best_s, time.process_time() - begun)
        reader.close()
    return Rate(output, round(len(text) / 1e6 / best_s, 1), goal, reports)


def rates(quick: bool) -> list[Rate]:
    """Every kind of output."""
    size = (1 if quick else 16) * 1_000_000
    named = b"Epoch 1 loss: 0.5\n"
    own = {"patterns": [r"epoch (?P<epoch>\d+) .*acc=(?P<acc>\S+)"]}
    return [
        rate("plain text, no epoch yet", {}, plain(size), 100),
        rate("plain text, after an epoch", {}, plain(size), 100, named),
        rate("plain text, after a step", {}, plain(size), 100, b"step 1 loss 0.5\n"),
        rate("plain text, own pattern", own, plain(size)),
        rate("plain text, JSON lines wanted", {"kind": "json"}, plain(size), 100),
        rate("tqdm bars that name their epoch", {}, bars(size, b"Epoch N: "), 20),
        rate("tqdm bars after an epoch's line", {}, bars(size, b""), 20, named),
        rate("a line for each step", {}, steps(size)),
        rate("a line for each step, no epochs", {}, steps(size, named=False)),
        rate("a JSON object for each step", {"kind": "json"}, objects(size)),
    ]


def main(arguments: list[str]) -> None:
    """Measure, and print a table or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.progress", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one megabyte each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    found = Measured(" ".join(["python -m benchmarks.progress", *arguments]), machine(), rates(chosen.quick))
    if chosen.json:
        print(msgspec.json.encode(found).decode())
        return
    here = found.machine
    print(f"{found.command}: {here.cores} cores, Python {here.python}, load {here.load}, {here.date}")
    for one in found.rates:
        goal = f"(goal {one.goal_mb_per_s:.0f})" if one.goal_mb_per_s else ""
        print(f"{one.output:34} {one.mb_per_s:8.1f} MB/s {goal:11} {one.reports:6} reports")


if __name__ == "__main__":
    main(sys.argv[1:])
