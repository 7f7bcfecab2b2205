"""A machine on which nothing can be begun for a while: its jobs wait for it, and are none the worse."""

from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited


@pytest.mark.slow
def test_what_a_node_cannot_begin_is_tried_again_whatever_its_retries(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--policy", "fifo") as controller:
        controller.begin()
        in_the_way = controller.home / "agent" / "runs" / "a"
        in_the_way.write_text("as if the disk were full")
        job = {"id": "a", "command": ["true"], "cwd": "/", "retries": 0, "backoff_s": 0.1}
        controller.call("POST", "/v1/jobs", {"jobs": [job]})
        tries: list[dict[str, str]] = []

        def tried() -> bool:
            shown = controller.call("GET", "/v1/jobs/a")
            tries[:] = shown["attempt_list"]
            return len(tries) >= 3 or shown["state"] == "failed"

        awaited(tried, "it was tried thrice")
        assert len(tries) >= 3
        assert "it cannot start" in tries[0]["how"]
        in_the_way.unlink()
        awaited(lambda: controller.jobs()["a"]["state"] == "finished", "it has finished")
        controller.down()
