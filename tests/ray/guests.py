"""Controllers on a Ray cluster, and what is asked of them. Ray is not imported: that takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.live.controller import LiveController, awaited

if TYPE_CHECKING:
    from tests.ray.cluster import RayCluster


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
