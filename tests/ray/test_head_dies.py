"""Ray's head dies, and one comes back at its address: jobs save and wait, and go on when there is a Ray again."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.processes import below, end_all
from tests.ray.guests import await_running, submit, up_nodes


class Head:
    """A head that lends a GPU itself, at an address of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, name: str) -> None:
        temporary = self._folder / name
        temporary.mkdir()
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
        ray += ["--node-ip-address", "127.0.0.1", "--port", self.address.rpartition(":")[2], "--node-name", "n1"]
        ray += ["--include-dashboard", "false", "--num-cpus", "1", "--num-gpus", "1"]
        ray += ["--object-store-memory", str(80 << 20), "--temp-dir", str(temporary)]
        with (self._folder / f"{name}.out").open("wb") as log:
            env = {**os.environ, "TMPDIR": str(temporary)}
            self._child = subprocess.Popen(ray, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        awaited(lambda: "Ray runtime started" in (self._folder / f"{name}.out").read_text(), "Ray is there")

    def kill(self) -> None:
        """Its store of the cluster's state and all else of it, with -9."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        end_all(self._folder)


@pytest.mark.ray
def test_jobs_wait_while_ray_is_away_and_go_on_when_there_is_one_again(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="hocket-rh-", dir="/tmp"))  # Paths of sockets in it must be short.
    head = Head(folder)
    options = ("--policy", "fifo", "--lease", "8", "--ray", head.address, "--ray-state", str(tmp_path / "nodes"))
    shared = ("--ray-checkpoints", str(tmp_path / "checkpoints"))
    try:
        head.start("first")
        with LiveController(tmp_path, *options, *shared) as controller:
            controller.begin()
            submit(controller, "steady", 600, 0.5)
            await_running(controller, "steady")
            awaited(lambda: (controller.jobs()["steady"]["epoch"] or 0) >= 3, "it trains")

            head.kill()
            awaited(lambda: not [p for p in below(tmp_path) if p.kind in ("training", "agent")], "its agent has left")
            awaited(lambda: not up_nodes(controller), "the node is lost")
            saved = controller.jobs()["steady"]["epoch"]
            assert controller.jobs()["steady"]["state"] in ("waiting", "paused")

            head.start("second")
            awaited(lambda: up_nodes(controller) == {"n1"}, "the node is lent again")
            awaited(lambda: (controller.jobs()["steady"]["epoch"] or 0) > saved, "it goes on")
            controller.down(grace_s=0.0)
    finally:
        head.kill()
        shutil.rmtree(folder, ignore_errors=True)
