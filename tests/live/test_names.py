"""The name of a job that is over can be used again, with a real controller."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited

SLEEP = "import os, sys, time\nprint(sys.argv[2], flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[LiveController]:
    with LiveController(tmp_path, "--gpus", "2", "--policy", "fifo") as found:
        found.begin()
        yield found
        found.down(grace_s=0.0)


def hocket(controller: LiveController, *args: str, code: int = 0) -> Any:
    return controller.types(*args, code=code)


@pytest.mark.slow
def test_a_name_means_the_newest_job_that_has_it(controller: LiveController) -> None:
    go = controller.root / "go"

    def submit(name: str, says: str, *options: str, code: int = 0) -> Any:
        script = (sys.executable, "-c", SLEEP, str(go), says)
        return hocket(controller, "submit", "-n", name, *options, "--", *script, code=code)

    go.touch()
    assert submit("net", "first", "--wait").stdout == "net\n"
    assert submit("net", "second", "--wait").stdout == "net~2\n"
    go.unlink()
    assert submit("net", "third").stdout == "net~3\n"
    assert "a live job has it" in submit("net", "fourth", code=2).stderr
    assert "must not end with '~' and a number" in submit("new~7", "", code=2).stderr
    awaited(lambda: controller.jobs()["net~3"]["state"] == "running", "the third runs")

    def all_hold() -> None:
        assert hocket(controller, "show", "net").stdout.startswith("net~3")
        assert [hocket(controller, "logs", name).stdout for name in ("net~1", "net~2", "net~3", "net")] == [
            "first\n",
            "second\n",
            "third\n",
            "third\n",
        ]
        assert "running" in hocket(controller, "why", "net").stdout.splitlines()[0]

    all_hold()
    controller.kill()
    controller.begin()
    awaited(lambda: hocket(controller, "logs", "net").stdout == "third\n", "the agent, which has the logs, is back")
    all_hold()

    # A job that starts after `net` starts after the newest, and a request is for the newest.
    submit("report", "", "--after", "net")
    assert "'net~3'" in hocket(controller, "why", "report").stdout
    assert "net~3" in hocket(controller, "stop", "net").stdout
    awaited(lambda: controller.jobs()["report"]["ended_s"] is not None, "the report is over")
    assert {name: row["state"] for name, row in controller.jobs().items()} == {
        "net": "finished",
        "net~2": "finished",
        "net~3": "stopped",
        "report": "stopped",
    }


@pytest.mark.slow
def test_the_names_of_an_array_and_of_a_file_can_be_used_again(controller: LiveController) -> None:
    jobs = controller.root / "jobs.toml"
    jobs.write_text(
        '[[job]]\nname = "sweep"\ncommand = "true"\narray = 2\ngpus = 0\n'
        '[[job]]\nname = "end"\ncommand = "true"\ngpus = 0\nafter = "sweep-*"\n'
    )
    assert hocket(controller, "submit", "--wait", str(jobs)).stdout.split() == ["sweep-0", "sweep-1", "end"]
    again = hocket(controller, "submit", "--wait", str(jobs)).stdout.split()
    assert again == ["sweep-0~2", "sweep-1~2", "end~2"]
    found = controller.call("GET", "/v1/jobs/end")
    assert found["job"]["after"] == ["sweep-0~2", "sweep-1~2"]
