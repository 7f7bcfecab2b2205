"""Training on parameter servers as a job of a real controller: on one node and on two, paused and resumed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live import agent
from tests.live.controller import LiveController, awaited

from hocket.runtimes.paramserver.generators import generate

_EPOCHS = 60
_SCRIPT = f"""
import os, signal, sys, time
import numpy as np
from hocket.paramserver import Algorithm, DataBlock, train

class Halving(Algorithm):
    def init(self, rng):
        return {{"x": rng.normal(size=8)}}

    def compute(self, block, params):
        asked = signal.getsignal(signal.SIGTERM).__self__
        while not asked.end and not os.path.exists(sys.argv[1]) and block.state.get("seen", 0) >= 3:
            time.sleep(0.01)  # It must not be over before it is paused.
        block.state["seen"] = np.array(block.state.get("seen", 0) + 1)
        return {{"x": -params["x"] / 8}}

    def objective(self, block, params):
        return float(np.square(params["x"]).sum())

trained = train(
    Halving(), [DataBlock(f"block {{i}}", {{}}) for i in range(4)], workers=1, epochs={_EPOCHS}, checkpoint=sys.argv[2]
)
print("hosts", os.environ.get("GROUP_WORLD_SIZE", "1"), "objective", trained.objective, flush=True)
"""


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[LiveController]:
    (tmp_path / "halving.py").write_text(_SCRIPT)
    generate("nmf", tmp_path / "ratings.txt", scale=1e-3)
    with agent.two_nodes(tmp_path) as controller:
        yield controller


def printed(controller: LiveController, name: str) -> str:
    return str(controller.types("logs", name).stdout)


@pytest.mark.slow
def test_a_job_trains_on_two_nodes_is_paused_and_goes_on_where_it_was(two_nodes: LiveController) -> None:
    root = two_nodes.root
    go, saved = root / "go", root / "saved"
    command = [sys.executable, str(root / "halving.py"), str(go), str(saved)]
    job = {"id": "halving", "command": command, "cwd": "/", "sizes": [2]}
    (said,) = two_nodes.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
    assert not said["refused"]
    awaited(lambda: two_nodes.jobs()["halving"]["epoch"] == 3, "its epochs are reported")
    two_nodes.types("pause", "halving")
    awaited(lambda: two_nodes.jobs()["halving"]["state"] == "held", "it has saved its state and left")
    assert [path.name for path in saved.iterdir()] == ["iteration-000000004"]
    go.touch()
    two_nodes.types("resume", "halving")
    awaited(lambda: two_nodes.jobs()["halving"]["state"] == "finished", "it is over")
    epochs = [int(epoch) for epoch in re.findall(rf"epoch (\d+)/{_EPOCHS}", printed(two_nodes, "halving"))]
    assert epochs == list(range(1, _EPOCHS + 1))  # None is lost, and none is done twice.
    (end,) = re.findall(r"hosts (\d) objective (\S+)", printed(two_nodes, "halving"))
    assert end[0] == "2"
    assert 0 < float(end[1]) < 1e-12


@pytest.mark.slow
def test_an_application_is_a_job_as_others_are(two_nodes: LiveController) -> None:
    root = two_nodes.root
    command = (sys.executable, "-m", "hocket", "paramserver", "nmf", "--workers", "1", "--data")
    two_nodes.types(
        "submit", "-n", "nmf", "--until", "objective <= 0.2", "--wait", "--", *command, str(root / "ratings.txt"),
        "--epochs", "100000",
    )  # fmt: skip
    assert two_nodes.jobs()["nmf"]["state"] == "attained"
    assert list(root.glob("*/checkpoints/nmf/iteration-*/items.npy"))

    bad = root / "bad.txt"
    bad.write_text("1 2 3\n1 2 nan\n")
    two_nodes.types("submit", "-n", "bad", "--retries", "0", "--wait", "--", *command, str(bad), code=1)
    (line,) = printed(two_nodes, "bad").splitlines()
    assert line == f"hocket: {bad}, line 2, field 3: 'nan' is not a finite number"
