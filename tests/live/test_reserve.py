"""A reserved node gets only jobs of its owners, as users see it: a real controller and agent, and a restart."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited

JOB = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while not os.path.exists("go-" + os.environ["HOCKET_JOB"]):
    time.sleep(0.02)
"""


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[LiveController]:
    controller = LiveController(tmp_path, "--no-agent", "--policy", "fifo")
    with controller, LiveAgent(controller, "box", "--gpus", "2") as agent:
        controller.begin()
        agent.begin()
        (tmp_path / "job.py").write_text(JOB)
        yield controller
        controller.down(grace_s=0.0)


def hocket(controller: LiveController, *args: str, code: int = 0) -> str:
    done = controller.types(*args, code=code, folder=controller.root)
    return str(done.stdout + done.stderr)


def submit(controller: LiveController, name: str, owner: str) -> None:
    hocket(controller, "submit", "-n", name, "--owner", owner, "--", sys.executable, "job.py")


def state(controller: LiveController, name: str) -> str:
    return str(controller.jobs()[name]["state"])


@pytest.mark.slow
def test_only_jobs_of_its_owners_start_on_a_reserved_node(one_node: LiveController) -> None:
    submit(one_node, "early", "bo")
    awaited(lambda: state(one_node, "early") == "running", "it runs")
    told = hocket(one_node, "node", "reserve", "box", "--owner", "ana, cy", "--name", "demo")
    assert told == "box is reserved for ana, cy, as 'demo'\nearly of bo runs on\n"
    submit(one_node, "late", "bo")
    assert "box is reserved for ana, cy as 'demo'" in hocket(one_node, "why", "late")
    assert "up, reserved for ana, cy " in hocket(one_node, "nodes")

    one_node.kill()  # It is in the journal.
    one_node.begin()
    submit(one_node, "hers", "ana")
    awaited(lambda: state(one_node, "hers") == "running", "a job of the owner starts")
    assert (state(one_node, "early"), state(one_node, "late")) == ("running", "waiting")
    (row,) = json.loads(hocket(one_node, "nodes", "--json"))["nodes"]
    assert [(r["name"], r["owners"], r["holds"]) for r in row["reservations"]] == [("demo", ["ana", "cy"], True)]
    overlaps = hocket(one_node, "node", "reserve", "box", "--owner", "bo", "--from", "2h", "--until", "3h", code=2)
    assert "node 'box' is reserved for ana, cy as 'demo' at that time" in overlaps
    assert "--until must be a time such as 6h" in hocket(
        one_node, "node", "reserve", "box", "--owner", "bo", "--until", "soon", code=2
    )
    assert "node unreserve NODE" in hocket(one_node, "unreserve", "box", code=2)

    (one_node.root / "go-early").touch()
    awaited(lambda: state(one_node, "early") == "finished", "it ran to its end")
    assert state(one_node, "late") == "waiting"
    assert hocket(one_node, "node", "unreserve", "demo") == "removed: demo\n"
    awaited(lambda: state(one_node, "late") == "running", "jobs of all start again")


@pytest.mark.slow
def test_a_reservation_ends_by_itself(one_node: LiveController) -> None:
    hocket(one_node, "node", "reserve", "box", "--owner", "ana", "--until", "2s")
    submit(one_node, "his", "bo")
    awaited(lambda: state(one_node, "his") == "running", "it starts once the reservation is over")
    assert hocket(one_node, "nodes").splitlines()[1].split()[1] == "up"
