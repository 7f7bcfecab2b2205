"""What input on disk costs: `python -m benchmarks.block_store [--quick] [--json] [--folder DIR]`.

`reading`: blocks of 8 MiB are read around the page cache (O_DIRECT), through it with what was read dropped afterwards,
and from it.
`rounds`: a round over blocks, with some work on each, by the share α on disk: what is read ahead costs nothing as long
as the work takes longer.
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.runtimes.paramserver.algorithm import DataBlock
from hocket.runtimes.paramserver.block_store import BlockStore

_BLOCK = 8 << 20


class Reading(Struct, frozen=True):
    """One way of reading."""

    how: str
    mb_s: float
    cpu_ms_gb: float  # CPU time for each GB


class Round(Struct, frozen=True):
    """One share on disk."""

    alpha: float
    round_s: float
    slower_by: float  # than with all in memory


class BlockCosts(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    reading: list[Reading]
    rounds: list[Round]


def main(arguments: list[str]) -> None:
    """Measure, and print lines or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.block_store", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", default=tempfile.gettempdir(), metavar="DIR", help="on the disk to be measured")
    chosen = parser.parse_args(arguments)
    count, repetitions = (8, 1) if chosen.quick else (64, 5)
    found = BlockCosts(
        " ".join(["python -m benchmarks.block_store", *arguments]),
        machine(),
        reading(chosen.folder, count, repetitions),
        rounds(chosen.folder, count, repetitions),
    )
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: BlockCosts) -> str:
    """For people."""
    lines = [found.command, f"{found.machine}"]
    lines += [
        f"{each.how:24} {each.mb_s:6.0f} MB/s, {each.cpu_ms_gb:4.0f} ms of CPU time per GB" for each in found.reading
    ]
    lines += [f"α = {row.alpha:.2f}: a round takes {row.round_s:.3f} s ({row.slower_by:+.0%})" for row in found.rounds]
    return "\n".join(lines)


def reading(folder: str, count: int, repetitions: int) -> list[Reading]:
    """Each way in turn, over the same file; medians."""
    ways = {"around the page cache": True, "through it, and dropped": False, "from it": False}
    took: dict[str, list[tuple[float, float]]] = {how: [] for how in ways}
    with tempfile.NamedTemporaryFile(dir=folder) as file, mmap.mmap(-1, _BLOCK) as buffer:
        buffer[:] = os.urandom(_BLOCK)
        for _ in range(count):
            file.write(buffer)
        file.flush()
        os.fsync(file.fileno())
        for _ in range(repetitions):
            for how, direct in ways.items():
                if how != "from it":
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    _read(file.name, False, count, buffer)
                took[how].append(_read(file.name, direct, count, buffer))
    gb = count * _BLOCK / 1e9
    return [
        Reading(how, gb * 1000 / median([t for t, _ in all_of]), median([cpu for _, cpu in all_of]) * 1000 / gb)
        for how, all_of in took.items()
    ]


def _read(path: str, direct: bool, count: int, buffer: mmap.mmap) -> tuple[float, float]:
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        began_s, cpu_s = time.perf_counter(), time.process_time()
        for number in range(count):
            assert os.preadv(fd, [buffer], number * _BLOCK) == _BLOCK
        return time.perf_counter() - began_s, time.process_time() - cpu_s
    finally:
        os.close(fd)


def rounds(folder: str, count: int, repetitions: int) -> list[Round]:
    """The same work at each share, in turn; medians."""
    took: dict[float, list[float]] = {alpha: [] for alpha in (0.0, 0.25, 0.5, 0.75, 1.0)}
    with BlockStore(_inputs(count), 2 * count * _BLOCK, folder) as store:
        for _ in range(repetitions):
            for alpha, seconds in took.items():
                store.set_share_on_disk(alpha)
                _round(store)  # in which blocks come back from disk
                seconds.append(_round(store))
    in_memory_s = median(took[0.0])
    return [Round(alpha, median(all_of), median(all_of) / in_memory_s - 1) for alpha, all_of in took.items()]


def _round(store: BlockStore) -> float:
    began_s, total = time.perf_counter(), 0.0
    for _, data in store:
        total += float(np.sqrt(data["x"]).sum())
    assert total > 0
    return time.perf_counter() - began_s


def _inputs(count: int) -> Iterator[DataBlock]:
    rng = np.random.default_rng(0)
    for number in range(count):
        yield DataBlock(f"block {number}", {"x": rng.random(_BLOCK // 8)})


if __name__ == "__main__":
    main(sys.argv[1:])
