"""The servers of a cluster and their GPUs, numbered: the rows of columns."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.model.capacity import Layout
from hocket.model.partition import Partition, Sharing

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column


class GpuIndex(Struct, frozen=True, eq=False):
    """The servers with GPUs, and their GPUs one after another."""

    layout: Layout
    servers: tuple[int, ...]  # their numbers in the layout
    names: tuple[str, ...]
    server_by_name: dict[str, int]
    has: Column  # [server]: GPUs, cores, memory, network
    fair: Column  # [server]: cores, memory, network for each GPU
    begins: tuple[int, ...]  # [server]: its first GPU
    server_of: Any  # [GPU]
    bit_of: Any  # [GPU]: its place in the mask of a capacity

    def partition_of(self, gpu: int) -> str:
        """The partition of a GPU."""
        server = int(self.server_of[gpu])
        return gpu_name(self.names[server], gpu - self.begins[server])


@lru_cache(maxsize=16)
def gpu_index_of(layout: Layout) -> GpuIndex:
    """The servers of a cluster."""
    import numpy as np

    servers = tuple(i for i, node in enumerate(layout.nodes) if node.gpus)
    nodes = [layout.nodes[i] for i in servers]
    has = np.array([n.vector for n in nodes], dtype=float).reshape(-1, 4)
    gpus = [n.gpus for n in nodes]
    bits = [i * layout.width + g for i, n in zip(servers, nodes, strict=True) for g in range(n.gpus)]
    names = tuple(n.id for n in nodes)
    return GpuIndex(
        layout, servers, names, {name: i for i, name in enumerate(names)}, has,
        has[:, 1:] / np.maximum(has[:, :1], 1.0), tuple(np.cumsum([0, *gpus]).tolist()),
        np.repeat(np.arange(len(nodes)), gpus), np.array(bits, dtype=int),
    )  # fmt: skip


def gpu_name(node: str, gpu: int) -> str:
    """The partition of one GPU. Names of jobs have no slash, so that it is unique."""
    return f"{node}/{gpu}"


def is_task_gpu(partition: Partition) -> bool:
    """Is this the partition of a GPU that runs tasks?"""
    return partition.sharing is Sharing.STACKED and "/" in partition.id and all(t.task for t in partition.tenants)
