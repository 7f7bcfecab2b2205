"""A drained node gets no new jobs, and with --now its jobs go elsewhere once they may: two real agents."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live import agent
from tests.live.controller import LiveController, awaited

# Saves when the file `save-NAME` is there, leaves on SIGTERM, ends when `go` is there.
JOB = """
import os, signal, sys, time
name = os.environ["HOCKET_JOB"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
saved = os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "state")
while not os.path.exists("go"):
    if os.path.exists(f"save-{name}") and not os.path.exists(saved):
        open(saved, "w").write("1")
    time.sleep(0.02)
"""


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[LiveController]:
    (tmp_path / "job.py").write_text(JOB)
    with agent.two_nodes(tmp_path) as controller:
        yield controller


def hocket(controller: LiveController, *args: str, code: int = 0) -> str:
    done = controller.types(*args, code=code, folder=controller.root)
    return str(done.stdout + done.stderr)


def submit(controller: LiveController, name: str, *options: str) -> None:
    hocket(controller, "submit", "-n", name, *options, "--", sys.executable, "job.py")


def place(controller: LiveController, name: str) -> str:
    """The node on which a job runs; empty if it does not."""
    row = controller.jobs()[name]
    return str(row["gpus"][0].split(":")[0]) if row["state"] == "running" else ""


def other(node: str) -> str:
    return "right" if node == "left" else "left"


@pytest.mark.slow
def test_a_drained_node_gets_no_jobs_until_it_is_opened(two_nodes: LiveController) -> None:
    submit(two_nodes, "stays")
    awaited(lambda: bool(place(two_nodes, "stays")), "it runs")
    drained, free = place(two_nodes, "stays"), other(place(two_nodes, "stays"))
    told = hocket(two_nodes, "node", "drain", drained)
    assert told == f"{drained} is drained: it gets no new jobs\nstays runs on\n"
    assert "there is no node 'lfet'; did you mean 'left'?" in hocket(two_nodes, "node", "drain", "lfet", code=2)
    hocket(two_nodes, "node", "drain", free)
    submit(two_nodes, "waits")
    why = hocket(two_nodes, "why", "waits")
    assert "left, right are drained" in why
    assert [line.split()[1:3] for line in hocket(two_nodes, "nodes").splitlines()[1:]] == [["up,", "drained"]] * 2

    two_nodes.kill()  # It is in the journal.
    two_nodes.begin()
    awaited(lambda: place(two_nodes, "stays") == drained, "it runs on")
    assert two_nodes.jobs()["waits"]["state"] == "waiting"
    assert hocket(two_nodes, "node", "undrain", free) == f"{free} gets jobs again\n"
    awaited(lambda: place(two_nodes, "waits") == free, "the other runs there")
    assert f"node '{free}' is not drained" in hocket(two_nodes, "node", "undrain", free, code=2)
    (two_nodes.root / "go").touch()
    awaited(lambda: two_nodes.jobs()["stays"]["state"] == "finished", "it ran to its end")
    assert two_nodes.jobs()["stays"]["attempts"] == 1


@pytest.mark.slow
def test_jobs_on_a_node_that_is_drained_now_leave_once_they_may_be_preempted(two_nodes: LiveController) -> None:
    submit(two_nodes, "free", "--preempt", "always")
    awaited(lambda: bool(place(two_nodes, "free")), "it runs")
    first = place(two_nodes, "free")
    told = hocket(two_nodes, "node", "drain", "--now", first)
    assert "free is told to save and leave" in told
    awaited(lambda: place(two_nodes, "free") == other(first), "it goes on elsewhere")
    hocket(two_nodes, "stop", "free")
    awaited(lambda: two_nodes.jobs()["free"]["ended_s"] is not None, "it is over")

    submit(two_nodes, "unsaved")
    awaited(lambda: place(two_nodes, "unsaved") == other(first), "it runs on the only node that is open")
    hocket(two_nodes, "node", "resume", first)
    told = hocket(two_nodes, "node", "drain", "--now", other(first))
    assert "unsaved stays until it may be preempted: it has not saved its state yet" in told
    assert place(two_nodes, "unsaved") == other(first)
    assert "being cleared" in hocket(two_nodes, "node", "list")
    (two_nodes.root / "save-unsaved").touch()
    awaited(lambda: place(two_nodes, "unsaved") == first, "it goes on elsewhere when it has saved")
