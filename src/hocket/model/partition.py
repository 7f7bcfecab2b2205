"""Which jobs share which resources, how, and when a change may take effect.

Every paper is a case of one sentence: these tenants share this partition this way until the next boundary.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from hocket.model.resources import Slice


class Sharing(StrEnum):
    """How the tenants of one partition share it."""

    ALONE = "alone"  # it has one tenant
    INTERLEAVED = "interleaved"  # COMP and COMM phases take turns
    PACKED = "packed"  # one training step for several models
    STACKED = "stacked"  # uncoordinated; may be oversubscribed up to a stated factor


class Boundary(Struct, frozen=True, gc=False):
    """When a change may take effect, and so how long a running epoch is.

    `Boundary("after", batches=500)` or `Boundary("after", seconds=30)` set a length; the others have none.
    """

    at: str = "now"  # "now", at the end of a "step" or an "epoch", or "after" so many batches or seconds
    batches: int = 0  # length with "after"; 0: it is not counted in batches
    seconds: float = 0.0  # length with "after"; 0: it is not counted in seconds


NOW = Boundary()  # a change takes effect at once
STEP = Boundary("step")  # a change takes effect at the end of the present training step
EPOCH = Boundary("epoch")  # a change takes effect at the end of the present epoch
BOUNDARIES = ("now", "step", "epoch", "after")


class Tenant(Struct, frozen=True, gc=False):
    """A job, or one task or replica of it, in a partition."""

    job: str  # id of the job
    replicas: tuple[int, ...]  # number of replicas by node: one number for each slice of the partition
    task: str = ""  # name of a task, empty for the whole job; a replica against stragglers is "task#2"
    boundary: Boundary = NOW  # when a change to this tenant may take effect


class Partition(Struct, frozen=True, gc=False):
    """Resources by node, its tenants, and how they share it. Partitions are disjoint."""

    id: str  # unique in a plan; by custom the job's id where it has one tenant
    slices: tuple[Slice, ...]  # resources by node; at most one slice for each node
    tenants: tuple[Tenant, ...]  # jobs or tasks that use them; only tenants of one partition share resources
    sharing: Sharing = Sharing.ALONE  # how its tenants use the resources together; `ALONE` if there is one

    def size_of(self, job: str, task: str = "") -> int:
        """How many replicas the `job`, or this `task` of it, has in here; 0 if it is no tenant."""
        return sum(sum(t.replicas) for t in self.tenants if t.job == job and t.task == task)

    @property
    def gpus(self) -> int:
        """How many GPUs it holds."""
        slices = self.slices
        return len(slices[0].gpus) if len(slices) == 1 else sum([len(s.gpus) for s in slices])


class Holding(Struct, frozen=True, gc=False):
    """What one tenant has, or will have once a change under way is done."""

    partition: str  # id of the partition
    slices: tuple[Slice, ...]  # resources of that partition, by node; shared with its other tenants
    replicas: tuple[int, ...]  # number of replicas on each node, in the order of `slices`
    boundary: Boundary = NOW  # when a change may take effect

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
        """True when it needs no node that the other holding, `held`, has not."""
        nodes = {part.node for part in held.slices}
        return all(part.node in nodes for part in self.slices)
