"""Which nodes of Ray get an agent and which lose it, what is reserved of each, and what it is called. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from hocket.executors.ray.messages import NodeNeeds, Reserved
from hocket.model.resources import MAX_GPUS

_KIND = "accelerator_type:"
_HEAD = "node:__internal_head__"  # a resource that only Ray's head has
_SHORT = 6  # digits of a node's id that tell nodes of one name apart
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class RayNode(Struct, frozen=True):
    """A node as Ray sees it."""

    id: str
    name: str  # as it was given, or its host name
    address: str
    is_alive: bool = True
    total: dict[str, float] = {}
    free: dict[str, float] = {}


class NodeGroup(Struct, frozen=True):
    """A placement group of ours, and the actor in it; its name is all that is kept of them."""

    node: str
    node_id: str
    reserved: Reserved
    is_ready: bool = True  # Ray has found room for it.
    digest: str = ""  # of the settings of its agent; empty: it has no actor


class NewNode(Struct, frozen=True):
    """A node that has no placement group of ours, and the name that it gets."""

    node: RayNode
    name: str
    is_namesake: bool = False  # Another node has the name that it would have otherwise.


class Changes(Struct, frozen=True):
    """What to do next. The result is looked at before the next changes, so nothing is done twice."""

    remove: tuple[NodeGroup, ...] = ()  # Its node is gone.
    replace: tuple[NodeGroup, ...] = ()  # Its agent has other settings.
    start: tuple[NodeGroup, ...] = ()  # It has no agent.
    reserve: tuple[NewNode, ...] = ()


def group_name(namespace: str, node: str, node_id: str) -> str:
    """The name of a placement group; unlike actors, those of all namespaces are listed together."""
    return f"{namespace}/{node}@{node_id}"


def read_group_name(namespace: str, name: str) -> tuple[str, str] | None:
    """The node's name and id; None if it is not one of ours."""
    own, _, rest = name.partition("/")
    node, _, node_id = rest.rpartition("@")
    return (node, node_id) if own == namespace and node and node_id else None


def actor_name(node: str, node_id: str, digest: str) -> str:
    """The name of an actor, within our namespace."""
    return f"{node}@{node_id}#{digest}"


def digests(names: Iterable[str]) -> dict[tuple[str, str], str]:
    """Node and id → the digest of the settings that its actor has, by the names of actors."""
    found = {}
    for name in names:
        which, _, digest = name.rpartition("#")
        node, _, node_id = which.rpartition("@")
        if node and node_id:
            found[node, node_id] = digest
    return found


def changes(nodes: Iterable[RayNode], groups: Iterable[NodeGroup], digest: str) -> Changes:
    """What to change so that every node that is alive has a group with an agent."""
    alive = {node.id: node for node in nodes if node.is_alive}
    of_alive = {group.node_id: group for group in groups if group.node_id in alive}
    remove = tuple(group for group in groups if of_alive.get(group.node_id) is not group)
    ready = [group for group in of_alive.values() if group.is_ready]
    new = [node for node in alive.values() if node.id not in of_alive]
    return Changes(
        remove=remove,
        replace=tuple(group for group in ready if group.digest not in ("", digest)),
        start=tuple(group for group in ready if not group.digest),
        reserve=_named(new, {group.node for group in of_alive.values()}),
    )


def _named(nodes: Iterable[RayNode], taken: set[str]) -> tuple[NewNode, ...]:
    """The nodes with unique names. One that returns with another id has its old name, if it is not taken."""
    found: list[NewNode] = []
    for node in sorted(nodes, key=lambda node: node.id):
        plain = _NOT_IN_NAMES.sub("-", node.name).strip("-.") or "node"
        is_namesake = plain in taken
        name = f"{plain}-{node.id[:_SHORT]}" if is_namesake else plain
        found.append(NewNode(node, name, is_namesake))
        taken = taken | {name}
    return tuple(found)


def reservation(node: RayNode, gpus: int | None = None, cores: float | None = None) -> Reserved | None:
    """What to reserve: all that is free, or as much as is said; None if no core is left, for no job runs without."""
    free_cpus = float(int(node.free.get("CPU", 0.0)))
    cpus = free_cpus if cores is None else min(free_cpus, cores)
    if cpus <= 0:
        return None
    count = min(int(node.free.get("GPU", 0.0)), MAX_GPUS if gpus is None else gpus)
    mem_bytes = float(int(node.free.get("memory", 0.0) * (cpus / free_cpus)))
    return Reserved(cpus, count, mem_bytes, gpu_kind(node.total) if count else "")


def is_head(node: RayNode) -> bool:
    """Is it the node of Ray's head, which no autoscaler takes away?"""
    return _HEAD in node.total


def serves(node: RayNode, wanted: Iterable[Mapping[str, float]]) -> bool:
    """Has the node one of these sets of resources, if nothing else is on it?"""
    return any(all(node.total.get(name, 0.0) >= amount for name, amount in one.items()) for one in wanted)


def room_to_ask_for(groups: Iterable[NodeGroup], needs: NodeNeeds) -> list[dict[str, float]]:
    """What the cluster must have room for at once; nothing if no job waits.

    A node whose agent is not up yet is counted by what jobs wait for: else another one would come for the same job.
    """
    if not needs.wanted:
        return []
    up = set(needs.up)
    ours = sorted((group for group in groups if group.node in up), key=lambda group: group.node_id)
    return [group.reserved.as_resources() for group in ours] + needs.wanted


def gpu_kind(resources: Mapping[str, float]) -> str:
    """As Ray calls them: `A100`, `H100`; empty if it does not say."""
    kinds = sorted(name.removeprefix(_KIND) for name in resources if name.startswith(_KIND))
    return kinds[0] if kinds else ""
