"""The ideal virtual host of a task and the ideal virtual task to migrate (MLFS, sections 3.3.2 and 3.3.3).

The ideal host has, of every resource, the least use that any candidate has, exchanges most data with the task, and does
not degrade it by a move. The task goes to the nearest server by Euclidean distance, and there to the least loaded GPU.

The ideal task to migrate uses most of what is overloaded and least of the rest, and exchanges no data with the server's
other tasks. The nearest task leaves, and again, until nothing is overloaded. While a GPU is overloaded only tasks of
overloaded GPUs leave, and of these only the share p_s with the lowest priorities.

Data are divided by the most that any candidate has. A GPU or server with one task is never overloaded.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.policies.kit.load_table import LoadTable

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

_TOLERANCE = 1e-9


class HostCandidates:
    """The servers that could host a task with these needs without being overloaded; follows the load table.

    `accepts` marks the servers that the job accepts; None stands for all.
    """

    __slots__ = ("_accepts", "_amounts", "_changes_seen", "_loads", "_table", "_use")

    def __init__(self, table: LoadTable, needs: Column, accepts: Any = None) -> None:
        import numpy as np

        self._table, self._amounts, self._accepts = table, needs.tolist(), accepts
        self._changes_seen = len(table.changed_servers)
        gpus, server_of = table.fitting_gpus(needs), table.index.server_of
        if accepts is not None:
            gpus &= accepts[server_of]
        self._loads = np.where(gpus, table.gpu_load, inf)  # infinite where it cannot be
        servers = np.zeros(len(table.use), dtype=bool)
        servers[server_of[gpus]] = True
        self._use: Column = np.where(servers[:, None], table.use, inf)  # infinite where it cannot be

    def best_gpu(self, traffic_mib: dict[int, float], stays: int = -1, degradation: float = 0.0) -> int:
        """The least loaded GPU of the server nearest to the ideal virtual host; -1 if the task fits nowhere.

        `traffic_mib`: server → data that the task exchanges with the tasks there. `degradation` is what moving costs
        it, on every server but the one where it is, `stays`.
        """
        import numpy as np

        self._update()
        use = self._use
        ideal = np.minimum.reduce(use) if len(use) else None
        if ideal is None or ideal[0] == inf:
            return -1
        off = use - ideal
        distance = np.einsum("ij,ij->i", off, off)
        there = {s: mib for s, mib in traffic_mib.items() if distance[s] < inf}
        if most := max(there.values(), default=0.0):
            distance += 1.0
            for s, mib in there.items():
                distance[s] += (1.0 - mib / most) ** 2 - 1.0
        if degradation:
            here = distance[stays] if stays >= 0 else inf
            distance += degradation**2
            if stays >= 0:
                distance[stays] = here
        server = self.nearest(distance, there, most)
        begins, ends = self._table.index.begins[server : server + 2]
        return int(begins + self.first_gpu(self._loads[begins:ends]))

    def nearest(self, distance: Column, _traffic_mib: dict[int, float], _most_mib: float) -> int:
        """The server to take, by these squared distances; infinite where the task cannot be."""
        return int(distance.argmin())

    def first_gpu(self, loads: Column) -> int:
        """The GPU of the server to take, by these loads; infinite where the task cannot be."""
        return int(loads.argmin())

    def _update(self) -> None:
        """Look again at the servers that changed. They are few: plain numbers are faster than columns here."""
        table = self._table
        if self._changes_seen == len(table.changed_servers):
            return
        for server in set(table.changed_servers[self._changes_seen :]):
            begins, ends = table.index.begins[server : server + 2]
            loads = table.loads_on(server, self._amounts)
            self._loads[begins:ends] = loads
            accepted = self._accepts is None or self._accepts[server]
            ok = accepted and min(loads) < inf and table.stays_within_limit(server, self._amounts)
            self._use[server] = table.use[server] if ok else inf
        self._changes_seen = len(table.changed_servers)


class RunningTask(Struct, frozen=True, eq=False):
    """A task on a server that may be overloaded."""

    job: str
    task: str
    gpu: int
    needs: Column  # GPU load, cores, memory, network
    priority: float
    traffic_mib: float  # with the other tasks of the server
    number: int  # of the job's submission; breaks ties


def overloaded_gpus(table: LoadTable, server: int) -> list[int]:
    """The GPUs of a server with more load than the limit, on which several tasks are."""
    begins, ends = table.index.begins[server : server + 2]
    return [
        gpu
        for gpu in range(begins, ends)
        if table.gpu_tenants[gpu] > 1 and table.gpu_load[gpu] > table.limit + _TOLERANCE
    ]


def overloaded_resources(table: LoadTable, server: int) -> list[bool]:
    """Cores, memory, network: which are used beyond the limit, by several jobs or tasks?"""
    if table.tenants[server] < 2:
        return [False] * 3
    return [bool(u > table.limit + _TOLERANCE) for u in table.use[server][1:]]


def next_to_migrate(table: LoadTable, server: int, tasks: list[RunningTask], p_s: float) -> RunningTask | None:
    """The task to migrate next; None when the server is not overloaded."""
    gpus, others = overloaded_gpus(table, server), overloaded_resources(table, server)
    if not gpus and not any(others):
        return None
    among = tasks
    if gpus:
        among = sorted((t for t in tasks if t.gpu in gpus), key=lambda t: (t.priority, -t.number, t.task))
        among = among[: max(1, ceil(p_s * len(among)))]
    if not among:
        return None
    return among[nearest_to_ideal_task(table.index.has[server], among, [bool(gpus), *others])]


def nearest_to_ideal_task(has: Column, tasks: list[RunningTask], overloaded: list[bool]) -> int:
    """The number of the task nearest to the ideal virtual task."""
    import numpy as np

    use: Any = np.array([t.needs for t in tasks]) / np.where(has > 0, has, np.inf)
    ideal = np.where(overloaded, use.max(axis=0), use.min(axis=0))
    data = np.array([t.traffic_mib for t in tasks])
    if (most := data.max()) > 0:
        data = data / most
    return int((((use - ideal) ** 2).sum(axis=1) + data**2).argmin())
