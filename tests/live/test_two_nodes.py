"""A job over two nodes, each with an agent and processes of its own: what becomes of one part becomes of all."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live import agent
from tests.live.controller import LiveController, awaited
from tests.live.processes import below

from hocket.agent.node.ack_cursor import read_cursor

_PART = """
import os, sys, time
rank, attempt = int(os.environ["RANK"]), os.environ["HOCKET_ATTEMPT"]
open(os.path.join(sys.argv[1], f"{attempt}-{rank}"), "w").close()
if sys.argv[2] == "breaks" and rank and attempt == "1":
    while not os.path.exists(os.path.join(sys.argv[1], "1-0")):
        time.sleep(0.01)
    sys.exit(3)
if sys.argv[2] == "breaks" and attempt == "1":
    time.sleep(600)  # It would never notice that the other one is gone.
while sys.argv[2] == "finishes" and rank and not os.path.exists(os.path.join(sys.argv[1], "go")):
    time.sleep(0.01)
"""


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[LiveController]:
    (tmp_path / "part.py").write_text(_PART)
    with agent.two_nodes(tmp_path) as controller:
        yield controller


def submit(controller: LiveController, how: str) -> Path:
    told = controller.root / how
    told.mkdir()
    command = [sys.executable, str(controller.root / "part.py"), str(told), how]
    job = {"id": how, "command": command, "cwd": "/", "sizes": [2], "backoff_s": 0.01}
    (said,) = controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
    assert not said["refused"]
    return told


@pytest.mark.slow
def test_a_job_over_two_nodes_ends_with_its_last_part_and_breaks_with_the_first(two_nodes: LiveController) -> None:
    told = submit(two_nodes, "finishes")
    parts = [two_nodes.root / node / "runs" / "finishes" / "1" for node in ("left", "right")]
    awaited(lambda: [read_cursor(str(part)).over for part in parts].count(True) == 1, "one part is known to have ended")
    awaited(lambda: two_nodes.jobs()["finishes"]["state"] == "running", "the job runs on with the other")
    (told / "go").touch()
    awaited(lambda: two_nodes.jobs()["finishes"]["state"] == "finished", "it has finished")
    assert sorted(path.name for path in told.iterdir()) == ["1-0", "1-1", "go"]

    told = submit(two_nodes, "breaks")
    awaited(lambda: two_nodes.jobs()["breaks"]["state"] == "finished", "the second attempt has finished")
    first, second = two_nodes.call("GET", "/v1/jobs/breaks")["attempt_list"]
    assert first["how"] == "failed: exit code 3"
    assert sorted(first["nodes"]) == sorted(second["nodes"]) == ["left", "right"]
    assert {f"{second['run']}-0", f"{second['run']}-1"} <= {path.name for path in told.iterdir()}
    awaited(lambda: not [p for p in below(told) if p.kind == "training"], "nothing of the first attempt is left")
