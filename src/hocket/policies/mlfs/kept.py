"""What the tasks on every GPU come to, kept from one decision to the next.

Partitions and measurements are values, so that of the very same ones the same is true: only what changed since the
last decision is looked at. It decides nothing: whatever snapshot comes, the columns are those of that snapshot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hocket.model.capacity import Layout
from hocket.model.partition import Partition
from hocket.model.snapshot import demand_of
from hocket.model.view import JobView, Use
from hocket.policies.mlfs.ground import ground_of, is_gpu

if TYPE_CHECKING:
    from typing import Any

    from hocket.policies.mlfs.shapes import Column

LEAST_USE = 0.5  # of what is asked for, however little was measured; what is asked for on a GPU stays below 2 then


def measured_factor(view: JobView) -> float:
    """How much more or less GPU time than asked for its tasks take, as far as that was measured."""
    graph = view.job.tasks
    if view.use is None or graph is None:
        return 1.0
    asked = sum(t.demand.gpus * t.demand.gpu_share for t in graph.tasks)
    return max(LEAST_USE, view.use.gpus / asked) if asked and view.use.gpus else 1.0


class Kept:
    """Columns by GPU, of the snapshot that was followed last."""

    __slots__ = ("_ground", "_plain", "_seen", "_uses", "amounts", "places", "room", "tenants")

    def __init__(self, layout: Layout) -> None:
        import numpy as np

        self._ground = ground_of(layout)
        gpus = len(self._ground.server_of)
        self._seen: dict[str, Partition] = {}
        self._uses: dict[str, Use | None] = {}  # job → what was measured of it
        self._plain: dict[str, Partition] = {}  # not of tasks
        self.places: dict[str, dict[str, int]] = {}  # job → task → GPU
        self.amounts: Column = np.zeros((gpus, 4))  # GPU load, cores, memory, network
        self.room: Column = np.zeros((gpus, 3))
        self.tenants: Any = np.zeros(gpus, dtype=int)

    def follow(self, partitions: dict[str, Partition], jobs: dict[str, JobView]) -> None:
        """Be the columns of these partitions."""
        seen = self._seen
        gone = [old for pid, old in seen.items() if partitions.get(pid) is not old]
        new = [now for pid, now in partitions.items() if seen.get(pid) is not now]
        measured = {j for j, use in self._uses.items() if (view := jobs.get(j)) is not None and view.use is not use}
        if gone or new:
            self._seen = dict(partitions)
            for old in gone:
                self._forget(old)
            for now in new:
                self._note(now)
        touched = {self._gpu(p): p for p in new if is_gpu(p)}
        for job_id in measured:
            for gpu in self.places.get(job_id, {}).values():
                touched[gpu] = self._seen[self._ground.pid_of(gpu)]
        for gpu, partition in touched.items():
            self._sum_up(gpu, partition, jobs)
        for job_id in measured | {t.job for p in touched.values() for t in p.tenants}:
            self._uses[job_id] = jobs[job_id].use
        for old in gone:
            for tenant in old.tenants:
                if tenant.job not in self.places:
                    self._uses.pop(tenant.job, None)

    def others(self) -> list[Partition]:
        """Partitions of jobs that are not cut into tasks, by what they hold: sums of floats depend on their order."""
        return sorted(self._plain.values(), key=lambda p: [(s.node, s.gpus, s.cores, s.mem_mib) for s in p.slices])

    def _gpu(self, partition: Partition) -> int:
        part = partition.slices[0]
        return int(self._ground.first[self._ground.index[part.node]]) + part.gpus[0]

    def _forget(self, partition: Partition) -> None:
        if not is_gpu(partition):
            del self._plain[partition.id]
            return
        gpu = self._gpu(partition)
        self.amounts[gpu], self.room[gpu], self.tenants[gpu] = 0.0, 0.0, 0
        for tenant in partition.tenants:
            # A new dict: whoever was given the old one keeps it as it was.
            left = {
                task: at for task, at in self.places.get(tenant.job, {}).items() if (task, at) != (tenant.task, gpu)
            }
            if left:
                self.places[tenant.job] = left
            else:
                self.places.pop(tenant.job, None)

    def _note(self, partition: Partition) -> None:
        if not is_gpu(partition):
            self._plain[partition.id] = partition
            return
        gpu = self._gpu(partition)
        for tenant in partition.tenants:
            self.places[tenant.job] = {**self.places.get(tenant.job, {}), tenant.task: gpu}

    def _sum_up(self, gpu: int, partition: Partition, jobs: dict[str, JobView]) -> None:
        part = partition.slices[0]
        load = cores = mem_mib = net_mbps = 0.0
        for tenant in partition.tenants:
            view = jobs[tenant.job]
            demand = demand_of(view.job, tenant.task)
            load += demand.gpus * demand.gpu_share * measured_factor(view)
            cores += demand.cores
            mem_mib += demand.mem_mib
            net_mbps += demand.net_mbps
        self.amounts[gpu] = (load, cores, mem_mib, net_mbps)
        self.room[gpu] = (part.cores - cores, part.mem_mib - mem_mib, part.net_mbps - net_mbps)
        self.tenants[gpu] = len(partition.tenants)


@lru_cache(maxsize=4)
def kept_of(layout: Layout) -> Kept:
    """The columns of a cluster; as large as the cluster is."""
    return Kept(layout)
