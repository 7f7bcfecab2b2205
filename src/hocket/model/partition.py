"""Who shares what with whom, and where a change may take hold.

Every paper is a case of one sentence: these tenants share this partition this way until the next boundary.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from hocket.model.resources import Slice


class Sharing(StrEnum):
    """How the tenants of one partition share it."""

    ALONE = "alone"  # one tenant
    INTERLEAVED = "interleaved"  # COMP and COMM phases take turns
    PACKED = "packed"  # one training step for several models
    STACKED = "stacked"  # uncoordinated; may be oversubscribed up to a stated factor


class Boundary(Struct, frozen=True, gc=False):
    """Where a change may take hold, and so how long a running epoch is.

    `Boundary("after", batches=500)` or `Boundary("after", seconds=30)` set a length; the others have none.
    """

    at: str = "now"  # now | step | epoch | after
    batches: int = 0
    seconds: float = 0.0


NOW = Boundary()
STEP = Boundary("step")
EPOCH = Boundary("epoch")
BOUNDARIES = ("now", "step", "epoch", "after")


class Tenant(Struct, frozen=True, gc=False):
    """A job, or one task or replica of it, in a partition."""

    job: str
    replicas: tuple[int, ...]  # by node: as many numbers as the partition has slices, in their order
    task: str = ""  # of the job's task graph; a replica against stragglers is "task#2"
    boundary: Boundary = NOW


class Partition(Struct, frozen=True, gc=False):
    """Resources by node, its tenants, and how they share it. Partitions are disjoint."""

    id: str
    slices: tuple[Slice, ...]  # at most one for each node
    tenants: tuple[Tenant, ...]  # disjoint resources between partitions; sharing happens only in here
    sharing: Sharing = Sharing.ALONE

    def size_of(self, job: str, task: str = "") -> int:
        """How many replicas the job has in here."""
        return sum(sum(t.replicas) for t in self.tenants if t.job == job and t.task == task)

    @property
    def gpus(self) -> int:
        """How many GPUs it holds."""
        slices = self.slices
        return len(slices[0].gpus) if len(slices) == 1 else sum([len(s.gpus) for s in slices])


class Holding(Struct, frozen=True, gc=False):
    """What one tenant has, or will have once a change under way is done."""

    partition: str
    slices: tuple[Slice, ...]
    replicas: tuple[int, ...]
    boundary: Boundary = NOW

    @property
    def size(self) -> int:
        """Replicas in all."""
        replicas = self.replicas
        return replicas[0] if len(replicas) == 1 else sum(replicas)

    @property
    def gpus(self) -> int:
        """How many GPUs it reaches."""
        slices = self.slices
        return len(slices[0].gpus) if len(slices) == 1 else sum([len(s.gpus) for s in slices])

    def stays_within(self, held: Holding) -> bool:
        """True when it needs no node that the other has not."""
        nodes = {part.node for part in held.slices}
        return all(part.node in nodes for part in self.slices)
