"""Ray's own autoscaler, with a provider that starts raylets here: for a job that fits no node, one comes."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.processes import end_all

pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` installs it")

_NODES = {
    "head": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
    "gpu": {"resources": {"CPU": 1, "GPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2},
}


@pytest.fixture
def autoscaled() -> Iterator[str]:
    """The address of a head without GPUs, whose autoscaler may add two nodes of two each."""
    folder = Path(tempfile.mkdtemp(prefix="hocket-as-", dir="/tmp"))  # Paths of sockets in it must be short.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "cluster_name": "fake", "max_workers": 2, "upscaling_speed": 1.0, "idle_timeout_minutes": 5, "docker": {},
        "provider": {"type": "fake_multinode", "gcs_address": address}, "auth": {}, "available_node_types": _NODES,
        "head_node_type": "head", "file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False,
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
    with (folder / "out").open("wb") as log:
        head = subprocess.Popen(ray, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        awaited(
            lambda: "Ray runtime started" in (folder / "out").read_text() or head.poll() is not None, "Ray is there"
        )
        assert head.poll() is None, (folder / "out").read_text()
        yield address
    finally:
        head.terminate()
        head.wait(60)
        end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_job_that_fits_no_node_gets_one_that_the_autoscaler_adds(autoscaled: str, tmp_path: Path) -> None:
    options = ("--ray", autoscaled, "--ray-autoscale", "--policy", "fifo", "--ray-state", str(tmp_path / "nodes"))
    with LiveController(tmp_path, *options) as controller:
        controller.begin()
        assert [len(row["gpus"]) for row in controller.call("GET", "/v1/nodes")["nodes"]] == [0]
        job = {"id": "wide", "command": ["sleep", "600"], "cwd": "/", "sizes": [2]}
        (answer,) = controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
        assert not answer["refused"]
        awaited(lambda: controller.jobs()["wide"]["state"] == "running", "a node came for it")
        assert sorted(len(row["gpus"]) for row in controller.call("GET", "/v1/nodes")["nodes"]) == [0, 2]
        controller.down(grace_s=0.0)
