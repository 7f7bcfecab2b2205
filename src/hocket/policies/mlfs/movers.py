"""Which tasks leave an overloaded server (MLFS, section 3.3.3).

The ideal mover uses most of what is overloaded and least of the rest, and exchanges nothing with the other tasks of
the server. The task nearest to it leaves, and again, until nothing is overloaded. While a GPU is overloaded only tasks
of overloaded GPUs leave, and of these only the share p_s with the lowest priorities.

A GPU with one task is not overloaded, whatever it takes, nor is a server with one: nobody is in its way.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from msgspec import Struct

from hocket.policies.mlfs.board import Board

if TYPE_CHECKING:
    from typing import Any

    from hocket.policies.mlfs.shapes import Column

_TOLERANCE = 1e-9


class OnServer(Struct, frozen=True, eq=False):
    """A task on a server that may have to give up some."""

    job: str
    task: str
    gpu: int
    needs: Column  # GPU load, cores, memory, network
    priority: float
    traffic_mib: float  # with the other tasks of the server
    number: int  # of the job's submission; breaks ties


def overloaded_gpus(board: Board, server: int) -> list[int]:
    """The GPUs of a server with more load than the limit, on which several tasks are."""
    begins, ends = board.ground.begins[server : server + 2]
    return [
        gpu
        for gpu in range(begins, ends)
        if board.gpu_tenants[gpu] > 1 and board.gpu_load[gpu] > board.limit + _TOLERANCE
    ]


def overloaded_resources(board: Board, server: int) -> list[bool]:
    """Cores, memory, network: which are used beyond the limit, by several tenants?"""
    if board.tenants[server] < 2:
        return [False] * 3
    return [bool(u > board.limit + _TOLERANCE) for u in board.use[server][1:]]


def next_mover(board: Board, server: int, tasks: list[OnServer], p_s: float) -> OnServer | None:
    """The task that leaves next; None when the server is not overloaded."""
    gpus, others = overloaded_gpus(board, server), overloaded_resources(board, server)
    if not gpus and not any(others):
        return None
    among = tasks
    if gpus:
        among = sorted((t for t in tasks if t.gpu in gpus), key=lambda t: (t.priority, -t.number, t.task))
        among = among[: max(1, ceil(p_s * len(among)))]
    if not among:
        return None
    return among[nearest(board.ground.has[server], among, [bool(gpus), *others])]


def nearest(has: Column, tasks: list[OnServer], overloaded: list[bool]) -> int:
    """The number of the task nearest to the ideal mover."""
    import numpy as np

    use: Any = np.array([t.needs for t in tasks]) / np.where(has > 0, has, np.inf)
    ideal = np.where(overloaded, use.max(axis=0), use.min(axis=0))
    data = np.array([t.traffic_mib for t in tasks])
    if (most := data.max()) > 0:
        data = data / most
    return int((((use - ideal) ** 2).sum(axis=1) + data**2).argmin())
