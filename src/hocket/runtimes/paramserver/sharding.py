"""Which host has which rows and which blocks: pure."""

from __future__ import annotations


def rows_of(rows: int, host: int, hosts: int) -> tuple[int, int]:
    """The first row of a host's shard, and the first behind it."""
    return rows * host // hosts, rows * (host + 1) // hosts


def blocks_of(blocks: int, host: int, hosts: int) -> range:
    """The blocks that stand on a host. They are dealt out in turn, so that every iteration has some of each host."""
    return range(host, blocks, hosts)


def iterations_of_epoch(blocks: int, batch: int) -> list[range]:
    """The blocks of each iteration of an epoch: `batch` at a time, and all of them once."""
    return [range(first, min(first + batch, blocks)) for first in range(0, blocks, batch)]


def others(host: int, hosts: int) -> list[int]:
    """The other hosts in the order in which this one turns to them: all hosts turn to different ones at a time."""
    return [(host + step) % hosts for step in range(1, hosts)]
