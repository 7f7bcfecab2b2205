"""Calls to Ray: list its nodes, and keep a placement group on each, with an actor in it that runs an agent.

Both are detached: they outlive the process that made them, so that jobs notice neither its end nor the controller's.
Both are found by their names, so nothing needs to be remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import ray
from ray._private.state import state as ray_state
from ray.autoscaler.sdk import request_resources
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hocket.executors.ray.agent_actor import AgentActor
from hocket.executors.ray.messages import AgentSpec, Reserved
from hocket.executors.ray.node_changes import (
    NodeGroup,
    RayNode,
    actor_name,
    digests,
    gpu_kind,
    group_name,
    read_group_name,
)

_log = logging.getLogger("hocket.executors")
_NODE = "ray.io/node-id"  # a label that every node has
_WAIT_S = 5.0  # for a placement group: what it asks for was free a moment ago
_LEAVE_S = 150.0  # for an agent to stop its jobs and to end


class NotReserved(Exception):
    """What was free on a node is not free any more."""


class Cluster:
    """The cluster that this process is connected to, with our placement groups and actors."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def nodes(self) -> list[RayNode]:
        """All nodes that Ray knows, those that died among them."""
        free: dict[str, dict[str, float]] = ray_state.available_resources_per_node()  # Only totals are public.
        return [ray_node(row, free.get(row["NodeID"], {})) for row in ray.nodes()]

    def own_address(self) -> str:
        """The address that Ray has for this machine."""
        return str(ray.util.get_node_ip_address())

    def groups(self) -> list[NodeGroup]:
        """Our placement groups."""
        running = digests(ray.util.list_named_actors())
        found = []
        for row, node, node_id in self._rows():
            bundle: dict[str, float] = next(iter(row["bundles"].values()), {})
            reserved = Reserved(bundle.get("CPU", 0.0), int(bundle.get("GPU", 0)), bundle.get("memory", 0.0))
            is_ready = row["state"] == "CREATED"
            found.append(NodeGroup(node, node_id, reserved, is_ready, running.get((node, node_id), "")))
        return found

    def reserve(self, node: RayNode, name: str, reserved: Reserved) -> None:
        """Have Ray reserve it. Raises NotReserved, and leaves nothing behind then."""
        made = placement_group(
            [reserved.as_resources()],
            strategy="STRICT_PACK",
            name=group_name(self._namespace, name, node.id),
            lifetime="detached",
            bundle_label_selector=[{_NODE: node.id}],
        )
        if not made.wait(_WAIT_S):
            remove_placement_group(made)
            raise NotReserved(f"Ray has not reserved {reserved.cpus:g} CPUs and {reserved.gpus} GPUs of it")

    def ask_for_nodes(self, total: list[dict[str, float]]) -> None:
        """Have Ray's autoscaler make the cluster large enough for all these at once; none: as it likes."""
        request_resources(bundles=total)

    def start(self, group: NodeGroup, spec: AgentSpec) -> ray.ObjectRef[str]:
        """Start the actor of a group; the version of Hocket on that node when its agent is started."""
        (made,) = (row for row, node, node_id in self._rows() if (node, node_id) == (group.node, group.node_id))
        actor = ray.remote(AgentActor).options(
            name=spec.actor,
            lifetime="detached",
            max_restarts=-1,
            num_cpus=0,
            num_gpus=group.reserved.gpus,  # so that Ray tells it which they are
            max_concurrency=4,
            scheduling_strategy=PlacementGroupSchedulingStrategy(_group(made), 0),
        )
        started: ray.ObjectRef[str] = actor.remote(msgspec.json.encode(spec)).version.remote()
        return started

    def end_actor(self, group: NodeGroup) -> None:
        """End the actor of a group, if it has one. Its agent and the jobs go on for a while."""
        if group.digest:
            with suppress(ValueError):  # It ended just now.
                ray.kill(ray.get_actor(actor_name(group.node, group.node_id, group.digest)), no_restart=True)

    def remove(self, group: NodeGroup) -> None:
        """End the actor of a group, and give back what was reserved."""
        self.end_actor(group)
        for row, node, node_id in self._rows():
            if (node, node_id) == (group.node, group.node_id):
                remove_placement_group(_group(row))

    def end_orphaned_actors(self) -> None:
        """End actors whose placement group is gone: Ray keeps trying to restart them."""
        present = {(node, node_id) for _row, node, node_id in self._rows()}
        for which, digest in digests(ray.util.list_named_actors()).items():
            if which not in present:
                self.end_actor(NodeGroup(*which, Reserved(0.0), digest=digest))

    def ask_to_leave(self, group: NodeGroup) -> ray.ObjectRef[bool]:
        """Have the agent of a group stop its jobs and end; done when it has. Raises ValueError if it has no actor."""
        left: ray.ObjectRef[bool] = ray.get_actor(actor_name(group.node, group.node_id, group.digest)).leave.remote()
        return left

    def leave(self) -> None:
        """Have all agents stop their jobs and end, then give everything back."""
        groups = self.groups()
        asked = []
        for group in groups:
            if group.digest:
                with suppress(ValueError):
                    asked.append(self.ask_to_leave(group))
        if asked:
            _, silent = ray.wait(asked, num_returns=len(asked), timeout=_LEAVE_S)
            if silent:
                _log.warning("%d agents on Ray have not ended within %g s", len(silent), _LEAVE_S)
        for group in groups:
            self.remove(group)

    def _rows(self) -> Iterator[tuple[dict[str, Any], str, str]]:
        """Our placement groups as Ray describes them, each with the name and the id of its node."""
        for row in placement_group_table().values():
            which = read_group_name(self._namespace, row["name"])
            if which is not None and row["state"] != "REMOVED":
                yield row, *which


def ray_node(row: dict[str, Any], free: dict[str, float]) -> RayNode:
    """A node as `ray.nodes` describes it."""
    # Unless it was given one, a node's name is its address.
    name = row["NodeName"] if row["NodeName"] not in ("", row["NodeManagerAddress"]) else row["NodeManagerHostname"]
    return RayNode(row["NodeID"], name, row["NodeManagerAddress"], row["Alive"], row["Resources"], free)


def kind_on(nodes: list[RayNode], group: NodeGroup) -> str:
    """The kind of the GPUs that a group has."""
    return next((gpu_kind(node.total) for node in nodes if node.id == group.node_id and group.reserved.gpus), "")


def _group(row: dict[str, Any]) -> PlacementGroup:
    return PlacementGroup(ray.PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
