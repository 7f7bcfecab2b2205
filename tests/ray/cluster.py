"""A real Ray cluster on this machine, one raylet for each node, with GPUs that are only counted; and its guests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
from ray.cluster_utils import Cluster as Raylets
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from tests.live.controller import LiveController, awaited

_SMALL: dict[str, Any] = {"object_store_memory": 80 << 20, "include_dashboard": False}
# So that a lost node is seen in seconds; a machine that stands still for a while loses none.
_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 20}


class RayCluster:
    """A head and nodes; this process is connected to it, to see what Ray sees."""

    def __init__(self) -> None:
        self._raylets = Raylets(
            initialize_head=True, head_node_args={**_SMALL, "num_cpus": 0, "_system_config": _SOON, "node_name": "head"}
        )
        self.address: str = self._raylets.address
        ray.init(self.address, logging_level="critical", log_to_driver=False)

    def add_node(self, name: str, gpus: int = 1, cpus: int = 1) -> Any:
        """A node with so many cores and GPUs; what can kill it."""
        arguments = {"object_store_memory": _SMALL["object_store_memory"], "resources": {"accelerator_type:A100": 1}}
        return self._raylets.add_node(num_cpus=cpus, num_gpus=gpus, node_name=name, **arguments)

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


@contextmanager
def guest(cluster: RayCluster, root: Path, *options: str) -> Iterator[LiveController]:
    """A controller on a cluster, with checkpoints that all nodes share; whatever happens, nothing of it is left."""
    folders = ("--ray-state", str(root / "nodes"), "--ray-checkpoints", str(root / "checkpoints"))
    with LiveController(root, "--policy", "fifo", "--ray", cluster.address, *folders, *options) as controller:
        try:
            controller.begin()
            yield controller
        finally:
            controller.kill()
            cluster.clear()


def up_nodes(controller: LiveController) -> set[str]:
    """The nodes that are connected."""
    return {row["id"] for row in controller.call("GET", "/v1/nodes")["nodes"] if row["up"]}


def submit(controller: LiveController, name: str, epochs: int, epoch_s: float) -> None:
    """A job that runs so long, and saves after each epoch."""
    program = Path(__file__).parents[1] / "live" / "paced_job.py"
    code = 'exec python3 "$0" "$HOCKET_CHECKPOINT_DIR/done" "$@"'
    command = ["sh", "-c", code, str(program), str(epochs), str(epoch_s), "--saves", str(controller.root)]
    (said,) = controller.call("POST", "/v1/jobs", {"jobs": [{"id": name, "command": command, "cwd": "/"}]})["jobs"]
    assert not said["refused"], said


def node_of(controller: LiveController, job: str) -> str:
    """The node that a job runs on; empty if it does not."""
    row = controller.jobs()[job]
    attempts = controller.call("GET", f"/v1/jobs/{job}")["attempt_list"]
    return attempts[-1]["nodes"][0] if row["state"] == "running" and attempts else ""


def await_running(controller: LiveController, *jobs: str) -> None:
    """Wait until all of them run."""
    awaited(lambda: all(node_of(controller, job) for job in jobs), f"{', '.join(jobs)} run")
