"""Placed jobs by owner, and by how many GPUs they have for themselves, those with the fewest first.

Kept from one decision to the next (`decision_cache.py`): only partitions that changed since are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable

from hocket.model.partition import Partition
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import VersionedMap
from hocket.policies.kit.decision_cache import borrow

Held = tuple[int, int, str]  # GPUs, number, job


def held_by(snapshot: Snapshot, owner: str) -> list[Held] | None:
    """The owner's placed jobs; None if one of them has several partitions, which are not summed up here."""
    with borrow((_Holdings, snapshot.capacity.layout), _Holdings) as holdings:
        holdings.follow(snapshot)
        return None if holdings.scattered[owner] else [*holdings.by_owner.get(owner, ())]


class _Holdings:
    __slots__ = ("_entries", "_partitions", "_places", "by_owner", "scattered")

    def __init__(self) -> None:
        self._partitions: VersionedMap[str, Partition] | None = None  # whose holdings these are
        self._clear()

    def _clear(self) -> None:
        self.by_owner: dict[str, list[Held]] = {}
        self.scattered: Counter[str] = Counter()  # owner → jobs that have several partitions
        self._entries: dict[str, list[tuple[str, Held]]] = {}  # partition → (owner, …) of each tenant
        self._places: Counter[str] = Counter()  # job → partitions

    def follow(self, snapshot: Snapshot) -> None:
        """Be the holdings of this snapshot."""
        partitions, views = snapshot.partitions, snapshot.jobs.data()
        if partitions is self._partitions:
            return
        changed: Iterable[str] | None = None
        if self._partitions is not None:
            changed = partitions.changed_since(self._partitions)
        self._partitions, present = partitions, partitions.data()
        if changed is None:
            self._clear()
            changed = present
        for pid in changed:
            for owner, held in self._entries.pop(pid, ()):
                line = self.by_owner[owner]
                del line[bisect_left(line, held)]
                self._place(owner, held[-1], -1)
            partition = present.get(pid)
            if partition is None:
                continue
            gpus = partition.gpus if len(partition.tenants) == 1 else 0  # for itself
            entries = self._entries[pid] = []
            for tenant in partition.tenants:
                view = views[tenant.job]
                owner, held = view.job.owner, (gpus, view.number, tenant.job)
                entries.append((owner, held))
                insort(self.by_owner.setdefault(owner, []), held)
                self._place(owner, tenant.job, 1)

    def _place(self, owner: str, job_id: str, sign: int) -> None:
        before = self._places[job_id]
        self._places[job_id] = now = before + sign
        if not now:
            del self._places[job_id]
        self.scattered[owner] += (now > 1) - (before > 1)
