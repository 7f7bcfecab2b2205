"""Harmony, live: real parameter-server jobs are profiled, share a group of two machines, and take turns there."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited

# Each job says when it computed, on which node. It is over when a file is there.
_SCRIPT = """
import os, sys, time
import numpy as np
from hocket.paramserver import Algorithm, DataBlock, train

seen, over, rows, comp_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

class Halving(Algorithm):
    def init(self, rng):
        return {"x": rng.normal(size=rows)}

    def compute(self, block, params):
        began_s = time.monotonic()
        time.sleep(comp_s)
        with open(seen, "a") as file:
            file.write(f"{os.environ['HOCKET_NODE']} {began_s} {time.monotonic()}\\n")
        return {"x": -params["x"] / 8}

    def objective(self, block, params):
        return float(not os.path.exists(over))

train(Halving(), [DataBlock(f"block {i}", {}) for i in range(2)], workers=1, epochs=1_000_000, target=0.0)
"""
# Much to compute and little to communicate, and the other way round.
_JOBS = {"computes": ("8", "0.04"), "communicates": ("1500000", "0.002")}


def computed(path: Path) -> dict[str, list[tuple[float, float]]]:
    """When a job computed, by node."""
    if not path.exists():
        return {}
    found: dict[str, list[tuple[float, float]]] = {}
    for node, began_s, ended_s in re.findall(r"^(\S+) (\S+) (\S+)$", path.read_text(), re.MULTILINE):
        found.setdefault(node, []).append((float(began_s), float(ended_s)))
    return found


@pytest.mark.slow
def test_jobs_are_profiled_and_take_turns_on_the_same_machines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    over = tmp_path / "over"
    controller = LiveController(tmp_path, "--no-agent", "--policy", "harmony", "--param", "profile_machines=2")
    with (
        controller,
        LiveAgent(controller, "left", "--gpus", "0") as left,
        LiveAgent(controller, "right", "--gpus", "0") as right,
    ):
        controller.begin()
        left.start()
        right.begin()
        left.await_up()
        for name, work in _JOBS.items():
            program = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / name), str(over), *work]
            controller.types("submit", "-n", name, "--hosts", "1-2", "--mem", "500M", "--", *program)
        awaited(lambda: all(job["size"] == 2 for job in controller.jobs().values()), "both run on both machines")
        assert "CPU" in controller.types("why", "communicates").stdout, "the other was profiled before"
        before = {name: len(computed(tmp_path / name).get("left", ())) for name in _JOBS}
        awaited(
            lambda: all(len(computed(tmp_path / name).get("left", ())) >= before[name] + 20 for name in _JOBS),
            "both go on, side by side",
        )
        over.touch()
        awaited(lambda: all(j["state"] == "finished" for j in controller.jobs().values()), "both are over")
        controller.down(grace_s=0.0)
    for node in ("left", "right"):
        phases = sorted(phase for name in _JOBS for phase in computed(tmp_path / name)[node])
        assert all(ended_s <= begins_s for (_, ended_s), (begins_s, _) in pairwise(phases)), "one computes at a time"
