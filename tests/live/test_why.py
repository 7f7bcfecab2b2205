"""What `hocket why` says of a real job that memory, and no GPU, keeps waiting."""

import json
import sys
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited


@pytest.mark.slow
def test_why_names_the_memory_that_is_short_and_the_job_that_may_not_be_preempted(tmp_path: Path) -> None:
    def says(*args: str) -> str:
        return str(controller.types(*args).stdout)

    with LiveController(tmp_path, "--gpus", "8") as controller:
        controller.begin()
        (node,) = controller.call("GET", "/v1/nodes")["nodes"]
        most = f"{int(node['mem_mib'] * 0.6)}M"
        for name in ("first", "second"):
            says("submit", "-n", name, "--mem", most, "--", sys.executable, "-c", "import time; time.sleep(600)")
            awaited(lambda: controller.jobs()["first"]["state"] == "running", "the first runs")
        page = says("why", "second")
        assert "of memory on one node: " in page
        assert "GPU" not in page.split("before")[0].split("waits for")[1]
        assert "1 job that runs is protected from preemption: 'first' (it has not saved its state yet)" in page
        assert json.loads(says("why", "second", "--json"))["short_of"] == ["mem_mib"]
        assert "of memory on one node: " in says("show", "second")
        assert "waits for" not in says("show", "first")
        says("stop", "first")
        awaited(lambda: controller.jobs()["second"]["state"] == "running", "the second runs")
