"""Ray's own autoscaler, with a provider that starts raylets here: for a job that fits no node, one comes, and goes."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.processes import below, end_all

_NODES = {
    "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
    "gpu": {"resources": {"CPU": 2, "GPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2},
}


class Autoscaled(NamedTuple):
    address: str
    folder: Path


@pytest.fixture
def autoscaled() -> Iterator[Autoscaled]:
    """The address of a head without GPUs, whose autoscaler may add two nodes of two each."""
    from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

    folder = Path(tempfile.mkdtemp(prefix="hocket-as-", dir="/tmp"))  # Paths of sockets in it must be short.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "cluster_name": "fake", "max_workers": 2, "upscaling_speed": 1.0, "idle_timeout_minutes": 0.05, "docker": {},
        "provider": {
            "type": "fake_multinode", "gcs_address": address, "use_node_id_as_ip": True, "disable_node_updaters": True,
            "disable_launch_config_check": True,
        }, "auth": {}, "available_node_types": _NODES,
        "head_node_type": "ray.head.default", "file_mounts": {}, "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [], "rsync_filter": [], "initialization_commands": [], "setup_commands": [],
        "head_setup_commands": [], "worker_setup_commands": [], "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    ray += ["--node-ip-address", "127.0.0.1", "--port", address.rpartition(":")[2], "--include-dashboard", "false"]
    ray += ["--num-cpus", "1", "--object-store-memory", str(80 << 20), "--temp-dir", str(folder / "ray")]
    ray += ["--autoscaling-config", str(folder / "config.json")]
    env = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "TMPDIR": str(folder)}
    env["RAY_OVERRIDE_NODE_ID_FOR_TESTING"] = FAKE_HEAD_NODE_ID
    with (folder / "out").open("wb") as log:
        head = subprocess.Popen(ray, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        awaited(
            lambda: "Ray runtime started" in (folder / "out").read_text() or head.poll() is not None, "Ray is there"
        )
        assert head.poll() is None, (folder / "out").read_text()
        yield Autoscaled(address, folder)
    finally:
        head.terminate()
        head.wait(60)
        end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def gpus_of_nodes(controller: LiveController) -> list[int]:
    """Of those that are connected."""
    return sorted(len(row["gpus"]) for row in controller.call("GET", "/v1/nodes")["nodes"] if row["up"])


def submit(controller: LiveController, name: str, *command: str) -> None:
    job = {"id": name, "command": list(command), "cwd": "/", "sizes": [2]}
    (answer,) = controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
    assert not answer["refused"]


def raylets(folder: Path) -> int:
    return sum("/raylet/raylet " in found.command for found in below(folder))


@pytest.mark.ray
def test_a_node_comes_for_a_job_is_given_back_after_it_and_comes_for_the_next(
    autoscaled: Autoscaled, tmp_path: Path
) -> None:
    options = ("--ray", autoscaled.address, "--ray-autoscale", "--ray-idle", "2s", "--policy", "fifo", "--lease", "6")
    with LiveController(tmp_path, *options, "--ray-state", str(tmp_path / "nodes")) as controller:
        controller.begin()
        assert gpus_of_nodes(controller) == [0]
        submit(controller, "wide", "sleep", "600")
        awaited(lambda: controller.jobs()["wide"]["state"] == "running", "a node came for it")
        assert gpus_of_nodes(controller) == [0, 2]
        assert raylets(autoscaled.folder) == 2

        controller.call("POST", "/v1/jobs/wide/stop", {})
        awaited(lambda: gpus_of_nodes(controller) == [0], "the node is given back")
        awaited(lambda: raylets(autoscaled.folder) == 1, "Ray has taken it away")

        submit(controller, "next", "sleep", "600")
        awaited(lambda: controller.jobs()["next"]["state"] == "running", "a node came for the next one")
        assert gpus_of_nodes(controller) == [0, 2]
        assert not any(row["drained"] for row in controller.call("GET", "/v1/nodes")["nodes"])
        controller.down(grace_s=0.0)
