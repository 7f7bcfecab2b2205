"""A real Ray cluster on this machine, one raylet for each node, with GPUs that are only counted."""

from types import TracebackType
from typing import Any, Self

import ray
from ray.cluster_utils import Cluster as Raylets
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

_SMALL: dict[str, Any] = {"object_store_memory": 80 << 20, "include_dashboard": False}
# Nobody here reads what workers print, or has Ray ask for machines: the processes for that are left out.
_FEW: dict[str, Any] = {"include_log_monitor": False, "no_monitor": True}
# So that a lost node is seen in seconds; a machine that stands still for a while loses none.
_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 20}


class RayCluster:
    """A head and nodes; this process is connected to it, to see what Ray sees."""

    def __init__(self) -> None:
        own = {"num_cpus": 0, "_system_config": _SOON, "node_name": "head"}
        self._raylets = Raylets(initialize_head=True, head_node_args={**_SMALL, **_FEW, **own})
        self.address: str = self._raylets.address
        ray.init(self.address, logging_level="critical", log_to_driver=False)

    def add_node(self, name: str, gpus: int = 1, cpus: int = 1) -> Any:
        """A node with so many cores and GPUs; what can kill it."""
        arguments = {"object_store_memory": _SMALL["object_store_memory"], "resources": {"accelerator_type:A100": 1}}
        return self._raylets.add_node(num_cpus=cpus, num_gpus=gpus, node_name=name, **arguments)

    def names(self) -> set[str]:
        """Its nodes that have cores."""
        return {row["NodeName"] for row in ray.nodes() if row["Alive"] and row["Resources"].get("CPU")}

    def kill_raylet(self, node: Any) -> None:
        """End Ray on a node with -9."""
        self._raylets.remove_node(node, allow_graceful=False)

    def actors(self) -> list[str]:
        """The names of all actors."""
        return [row["name"] for row in ray.util.list_named_actors(all_namespaces=True)]

    def groups(self) -> dict[str, str]:
        """All placement groups that are there: name → state."""
        rows = placement_group_table().values()
        return {row["name"]: row["state"] for row in rows if row["state"] != "REMOVED"}

    def is_as_before(self) -> bool:
        """Is nothing of a guest left?"""
        return not self.actors() and not self.groups()

    def clear(self) -> None:
        """Remove what a test that failed has left."""
        for row in ray.util.list_named_actors(all_namespaces=True):
            ray.kill(ray.get_actor(row["name"], row["namespace"]))
        self.remove_groups()

    def remove_groups(self) -> None:
        """Remove all placement groups, and with them the actors in them."""
        for row in placement_group_table().values():
            if row["state"] != "REMOVED":
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(row["placement_group_id"]))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        ray.shutdown()
        self._raylets.shutdown()
