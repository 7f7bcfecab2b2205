"""A controller whose journal is in a real PostgreSQL: killed with -9, it comes back to its jobs."""

import pytest
from tests.live.controller import LiveController, awaited


@pytest.mark.slow
def test_a_controller_on_postgresql_is_killed_and_comes_back(tmp_path, server):
    controller = LiveController(tmp_path, "--gpus", "1", "--policy", "fifo", "--store", server.url)
    other = LiveController(tmp_path / "second", "--gpus", "1", "--policy", "fifo", "--store", server.url)
    with controller, other as second:
        controller.begin()
        jobs = [
            {"id": "runs", "command": ["sh", "-c", f"until [ -e '{tmp_path}/go' ]; do sleep 0.1; done"], "cwd": "/"},
            {"id": "waits", "command": ["true"], "cwd": "/"},
        ]
        assert not any(said["refused"] for said in controller.call("POST", "/v1/jobs", {"jobs": jobs})["jobs"])
        awaited(lambda: controller.jobs()["runs"]["state"] == "running", "the first one runs")
        controller.kill()
        (tmp_path / "go").touch()
        controller.begin()
        awaited(lambda: controller.jobs()["waits"]["state"] == "finished", "both are done")
        assert controller.jobs()["runs"]["attempts"] == 1
        second.start()
        awaited(lambda: second.code is not None, "a second controller on this store is refused")
        assert second.code == 2
        assert f"held by the controller with pid {controller.pid}" in second.log.read_text()
        controller.down()
