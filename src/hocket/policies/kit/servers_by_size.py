"""Which servers have jobs of which size, kept from one decision to the next: for `gandiva.py`."""

from __future__ import annotations

from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import VersionedMap
from hocket.policies.kit.decision_cache import borrow


def size_in_gpus(job: Job) -> int:
    """How many GPUs a job needs at its smallest size, or how many tasks it has."""
    return len(job.tasks.tasks) if job.tasks is not None else job.sizes[0] * job.demand.gpus


def servers_with(snapshot: Snapshot, size: int) -> set[str]:
    """The servers that have jobs of this size."""
    with borrow((_ServersBySize, snapshot.capacity.layout), _ServersBySize) as known:
        known.follow(snapshot)
        return {*known.servers.get(size, ())}


class _ServersBySize:
    """How many jobs of each size are on which server, in the snapshot that was followed last."""

    def __init__(self) -> None:
        self.servers: dict[int, dict[str, int]] = {}
        self._seen: dict[str, tuple[tuple[int, str], ...]] = {}  # partition → the sizes and servers that it counts for
        self._partitions: VersionedMap[str, Partition] | None = None

    def follow(self, snapshot: Snapshot) -> None:
        """Bring the counts up to date with this snapshot."""
        present, jobs, last = snapshot.partitions.data(), snapshot.jobs.data(), self._partitions
        changed = snapshot.partitions.changed_since(last) if last is not None else None
        self._partitions = snapshot.partitions
        for pid in sorted({*self._seen, *present} if changed is None else changed):
            for size, node in self._seen.pop(pid, ()):
                there = self.servers[size]
                there[node] -= 1
                if not there[node]:
                    del there[node]
            if (partition := present.get(pid)) is None:
                continue
            nodes = [part.node for part in partition.slices]
            counted = tuple((size_in_gpus(jobs[t.job].job), node) for t in partition.tenants for node in nodes)
            self._seen[pid] = counted
            for size, node in counted:
                there = self.servers.setdefault(size, {})
                there[node] = there.get(node, 0) + 1
