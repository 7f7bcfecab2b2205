"""What a replica asks for, what a node has, and what a partition takes of it."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

# The resources that every node may have, in the order in which tables print them.
RESOURCES = ("gpus", "cores", "mem_mib", "net_mbps")

MAX_GPUS = 1024  # of one node: each has a bit in what is free, and a place in what is shown


class Demand(Struct, frozen=True, gc=False):
    """What one replica of a job needs; a replica never spans two nodes."""

    gpus: int = 0
    cores: float = 0.0
    mem_mib: float = 0.0
    net_mbps: float = 0.0
    gpu_share: float = 1.0  # of each of its GPUs' time; below 1 only stacked tenants leave the rest to others

    def times(self, replicas: int) -> Demand:
        """The demand of several replicas on one node."""
        if replicas == 1:
            return self
        return Demand(
            self.gpus * replicas,
            self.cores * replicas,
            self.mem_mib * replicas,
            self.net_mbps * replicas,
            self.gpu_share,
        )

    @property
    def gpus_only(self) -> bool:
        """True when GPUs are all it asks for: placing such a job needs no look at other resources."""
        return not (self.cores or self.mem_mib or self.net_mbps)


class Node(Struct, frozen=True, gc=False):
    """One machine and its capacity."""

    id: str
    gpus: int = 0
    gpu_kind: str = ""
    gpu_mem_mib: float = 0.0
    cores: float = 0.0
    mem_mib: float = 0.0
    net_mbps: float = 0.0

    def whole(self) -> Slice:
        """All that the node has, as a partition of whole machines takes it."""
        return Slice(self.id, gpu_ids((1 << self.gpus) - 1), self.cores, self.mem_mib, self.net_mbps)


class Slice(Struct, frozen=True, gc=False):
    """What a partition holds of one node. GPUs are named, for a job sees exactly those."""

    node: str
    gpus: tuple[int, ...] = ()
    cores: float = 0.0
    mem_mib: float = 0.0
    net_mbps: float = 0.0


@lru_cache(maxsize=4096)  # of one huge node, hardly two masks are alike
def gpu_ids(mask: int) -> tuple[int, ...]:
    """The GPUs of a bit mask, lowest first. Equal masks share one tuple."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


@lru_cache(maxsize=4096)
def gpu_mask(ids: tuple[int, ...]) -> int:
    """The bit mask of a tuple of GPUs."""
    mask = 0
    for i in ids:
        mask |= 1 << i
    return mask
