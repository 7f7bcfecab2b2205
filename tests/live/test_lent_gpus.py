"""Elastic jobs grow into devices that are idle, and give them back: real processes, through the command line."""

import sys
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.test_preemption import User

# Trains without an end, notes its devices at every start, and saves when it is told to stop.
_ELASTIC = """
import os, signal, sys, time

def save_and_leave(*_):
    with open(os.environ["HOCKET_CHECKPOINT_DIR"] + "/state", "w") as file:
        file.write("all")
    os._exit(0)

signal.signal(signal.SIGTERM, save_and_leave)
while True:
    print("devices", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    time.sleep(0.2)
"""


def devices(user: User, name: str) -> int:
    """How many the job's process has."""
    lines = [line for line in user.types("logs", name).splitlines() if line.startswith("devices ")]
    return len(lines[-1].removeprefix("devices ").split(",")) if lines else 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["las", "edf"])
def test_it_grows_when_others_end_and_shrinks_for_the_next(tmp_path: Path, policy: str) -> None:
    with LiveController(tmp_path, "--gpus", "4", "--policy", policy, "--param", "restart_s=0") as controller:
        controller.begin()
        user = User(controller)
        user.types("submit", "-n", "fixed", "--gpus", "3", "--", "sleep", "1000")
        user.awaits("fixed", "running")
        elastic = ("--gpus", "1,2,4", "--preempt", "always", "--", sys.executable, "-c", _ELASTIC)
        user.types("submit", "-n", "elastic", *elastic)
        awaited(lambda: devices(user, "elastic") == 1, "it starts in the one that is free")
        user.types("stop", "fixed")
        awaited(lambda: devices(user, "elastic") == 4, "it has grown")
        assert "grows: 3 GPUs are idle, and no waiting job can start there" in user.types("why", "elastic")
        user.types("submit", "-n", "next", "--gpus", "2", "--deadline", "1d", "--", "sleep", "1000")
        user.awaits("next", "running")
        awaited(lambda: devices(user, "elastic") == 2, "it has given two back")
        said = user.types("why", "elastic")
        assert "shrinks: 'next' can start in what it had" in said
        assert "not saved" not in said


@pytest.mark.slow
def test_a_job_that_displaced_another_grows_at_once(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "4", "--policy", "las", "--param", "levels_gpu_s=[1]") as controller:
        controller.begin()
        user = User(controller)
        user.types("submit", "-n", "large", "--gpus", "4", "--preempt", "always", "--", "sleep", "1000")
        awaited(lambda: user.row("large")["ran_s"] > 1, "large is on the lower level")
        user.types("submit", "-n", "elastic", "--gpus", "1,2,4", "--", sys.executable, "-c", _ELASTIC)
        awaited(lambda: devices(user, "elastic") == 4, "all that the other left")
        assert user.row("elastic")["attempts"] == 1
