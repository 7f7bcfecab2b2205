"""What a replica asks for, what a node has, and what a partition takes of it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

# The resources that every node may have, in the order in which tables print them.
RESOURCES = ("gpus", "cores", "mem_mib", "net_mbps")
# What a number of each is called, after the number.
UNITS = {"gpus": "GPUs", "cores": "cores", "mem_mib": "MiB of memory", "net_mbps": "Mbps of network"}

Vector = tuple[float, float, float, float]  # amounts in the order of RESOURCES
_TOLERANCE = 1e-6  # amounts are sums

MAX_GPUS = 1024  # of one node: each has a bit in what is free, and a place in what is shown


class Demand(Struct, frozen=True, gc=False):
    """What one replica of a job needs; a replica never spans two nodes."""

    gpus: int = 0  # number of GPUs; 0: none
    cores: float = 0.0  # CPU cores, also parts of one; 0: they are not counted
    mem_mib: float = 0.0  # memory in MiB; 0: it is not counted
    net_mbps: float = 0.0  # network in megabit per second; 0: it is not counted
    gpu_share: float = 1.0  # part of the time of each of its GPUs; only stacked tenants can use the rest

    def times(self, replicas: int) -> Demand:
        """The demand of so many `replicas` on one node."""
        if replicas == 1:
            return self
        return Demand(
            self.gpus * replicas,
            self.cores * replicas,
            self.mem_mib * replicas,
            self.net_mbps * replicas,
            self.gpu_share,
        )

    def minus(self, other: Demand) -> Demand:
        """What is left of it without the `other`."""
        return Demand(
            self.gpus - other.gpus, self.cores - other.cores, self.mem_mib - other.mem_mib,
            self.net_mbps - other.net_mbps, self.gpu_share,
        )  # fmt: skip

    @property
    def vector(self) -> Vector:
        """The amounts of all resources."""
        return self.gpus, self.cores, self.mem_mib, self.net_mbps

    @property
    def gpu_load(self) -> float:
        """How many GPUs' time it takes."""
        return self.gpus * self.gpu_share

    @property
    def load(self) -> Vector:
        """The amounts of all resources, of GPUs the time it takes."""
        return self.gpu_load, self.cores, self.mem_mib, self.net_mbps

    @property
    def gpus_only(self) -> bool:
        """True when GPUs are all it asks for: placing such a job needs no look at other resources."""
        return not (self.cores or self.mem_mib or self.net_mbps)


class Node(Struct, frozen=True, gc=False):
    """One machine and its capacity."""

    id: str  # name of the machine, unique in the cluster
    gpus: int = 0  # number of GPUs; they are numbered from 0
    gpu_kind: str = ""  # type of its GPUs, as `a100`; empty: not told
    gpu_mem_mib: float = 0.0  # memory of each GPU in MiB; 0: not told
    cores: float = 0.0  # CPU cores; 0: no job that asks for cores fits
    mem_mib: float = 0.0  # memory in MiB; 0: no job that asks for memory fits
    net_mbps: float = 0.0  # network in megabit per second; 0: no job that asks for network fits

    @property
    def vector(self) -> Vector:
        """The amounts of all resources."""
        return self.gpus, self.cores, self.mem_mib, self.net_mbps

    def whole(self) -> Slice:
        """All that the node has, as a partition of whole machines takes it."""
        return Slice(self.id, gpu_ids((1 << self.gpus) - 1), self.cores, self.mem_mib, self.net_mbps)


class Slice(Struct, frozen=True, gc=False):
    """What a partition holds of one node. GPUs are named, for a job sees exactly those."""

    node: str  # id of the node
    gpus: tuple[int, ...] = ()  # numbers of the GPUs on that node, from 0
    cores: float = 0.0  # CPU cores
    mem_mib: float = 0.0  # memory in MiB
    net_mbps: float = 0.0  # network in megabit per second

    @property
    def vector(self) -> Vector:
        """The amounts of all resources."""
        return len(self.gpus), self.cores, self.mem_mib, self.net_mbps

    @property
    def is_empty(self) -> bool:
        """True when it holds nothing: some jobs ask for nothing."""
        return not (self.gpus or self.cores or self.mem_mib or self.net_mbps)

    def minus(self, other: Slice) -> Slice:
        """What it holds that the `other`, a slice of the same node, does not."""
        return Slice(
            self.node, gpu_ids(gpu_mask(self.gpus) & ~gpu_mask(other.gpus)), max(0.0, self.cores - other.cores),
            max(0.0, self.mem_mib - other.mem_mib), max(0.0, self.net_mbps - other.net_mbps),
        )  # fmt: skip


def total(vectors: Iterable[Vector]) -> Vector:
    """The sum of each resource."""
    gpus, cores, mem_mib, net_mbps = map(sum, zip(*vectors, (0.0, 0.0, 0.0, 0.0), strict=True))
    return gpus, cores, mem_mib, net_mbps


def fits(asked: Vector, there: Vector) -> bool:
    """Is there as much of every resource as is asked for?"""
    gpus, cores, mem_mib, net_mbps = there
    return (
        asked[0] <= gpus + _TOLERANCE
        and asked[1] <= cores + _TOLERANCE
        and asked[2] <= mem_mib + _TOLERANCE
        and asked[3] <= net_mbps + _TOLERANCE
    )


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
