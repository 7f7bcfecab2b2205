"""What `hocket show` says of a job that crashed, and that a job that is held does not wait: with real processes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited, running

TRAIN = """
import os, sys, time
open(os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "state"), "w").write("saved")
for epoch in (1, 2):
    print(f"epoch {epoch}/2 loss=0.5 acc=0.75 f1=0.25 top5=0.9", flush=True)
print("the last line before the crash", flush=True)
raise RuntimeError("the data ran out")
"""
SLEEP = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveController]:
    root = tmp_path_factory.mktemp("shown")
    (root / "train.py").write_text(TRAIN)
    with running(root, "--gpus", "2", "--policy", "fifo") as found:
        yield found


def hocket(controller: LiveController, *args: str, code: int = 0) -> str:
    return str(controller.types(*args, code=code).stdout)


def shown(controller: LiveController, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hocket(controller, "show", name, "--json"))
    return found


@pytest.mark.slow
def test_a_crash_is_shown_with_its_last_lines_its_files_and_all_it_reported(controller: LiveController) -> None:
    script = (sys.executable, str(controller.root / "train.py"))
    hocket(controller, "submit", "-n", "net", "--retries", "2", "--backoff", "0s", "--wait", "--", *script, code=1)

    page = hocket(controller, "show", "net")
    for text in (
        "last lines of attempt 3, which failed: exit code 1",
        "the last line before the crash\n",
        "RuntimeError: the data ran out\n",
        "acc=0.75  f1=0.25  loss=0.5  top5=0.9",
    ):
        assert text in page
    found = shown(controller, "net")
    assert [a["number"] for a in found["attempt_list"]] == [1, 2, 3]
    assert found["attempts"] == 3
    assert found["crash"]["lines"][-1] == "RuntimeError: the data ran out"

    (log,), (checkpoint,) = found["log"], found["checkpoint"]
    assert (Path(checkpoint["path"]) / "state").read_text() == "saved"
    assert checkpoint["path"] in page
    printed = hocket(controller, "logs", "net", "--attempt", "3")
    assert printed == Path(log["path"]).read_text()
    assert hocket(controller, "logs", "net").count("the last line before the crash") == 3
    hocket(controller, "logs", "net", "--attempt", "4", code=2)


@pytest.mark.slow
def test_a_job_that_is_held_does_not_wait(controller: LiveController) -> None:
    go = controller.root / "go"
    sleep = (sys.executable, "-c", SLEEP, str(go))
    hocket(controller, "submit", "-n", "first", "--", *sleep)
    hocket(controller, "submit", "-n", "second", "--after", "first", "--", *sleep)
    awaited(lambda: controller.jobs()["first"]["ran_s"] > 0.5, "the first has run for a while")
    second = controller.jobs()["second"]
    assert (second["state"], second["waited_s"]) == ("held", 0.0)

    hocket(controller, "pause", "first")
    awaited(lambda: controller.jobs()["first"]["state"] == "held", "the first is paused")
    before_s = controller.jobs()["first"]["waited_s"]
    controller.kill()  # What is known of it survives.
    controller.begin()
    awaited(lambda: controller.jobs()["first"]["state"] == "held", "the first is paused")
    assert controller.jobs()["first"]["waited_s"] == before_s
    hocket(controller, "resume", "first")
    go.touch()
    awaited(lambda: controller.jobs()["second"]["ended_s"] is not None, "both are over")
    jobs = controller.jobs()
    assert jobs["second"]["waited_s"] < jobs["second"]["ended_s"] - jobs["first"]["ended_s"] + 0.001
