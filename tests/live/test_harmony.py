"""Harmony, live: real parameter-server jobs are profiled, share a group of two machines, and take turns there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def both_on_two_machines(tmp_path: Path, *options: str) -> Iterator[LiveController]:
    """A controller with these options of `hocket up`, and both jobs on both of its machines."""
    (tmp_path / "train.py").write_text(_SCRIPT)
    controller = LiveController(tmp_path, "--no-agent", *options)
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
            program = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / name), str(tmp_path / "over"), *work]
            controller.types("submit", "-n", name, "--hosts", "1-2", "--mem", "500M", "--", *program)
        awaited(lambda: all(job["size"] == 2 for job in controller.jobs().values()), "both run on both machines")
        yield controller
        (tmp_path / "over").touch()
        awaited(lambda: all(j["state"] == "finished" for j in controller.jobs().values()), "both are over")
        controller.down(grace_s=0.0)


def turns_on(node: str, tmp_path: Path) -> list[tuple[float, float]]:
    """When either job computed there, by when it began."""
    return sorted(phase for name in _JOBS for phase in computed(tmp_path / name).get(node, ()))


@pytest.mark.slow
def test_jobs_are_profiled_and_take_turns_on_the_same_machines(tmp_path: Path) -> None:
    with both_on_two_machines(tmp_path, "--policy", "harmony", "--param", "profile_machines=2") as controller:
        assert "CPU" in controller.types("why", "communicates").stdout, "the other was profiled before"
        before = {name: len(computed(tmp_path / name).get("left", ())) for name in _JOBS}
        awaited(
            lambda: all(len(computed(tmp_path / name).get("left", ())) >= before[name] + 20 for name in _JOBS),
            "both go on, side by side",
        )
    for node in ("left", "right"):
        phases = turns_on(node, tmp_path)
        assert all(ended_s <= begins_s for (_, ended_s), (begins_s, _) in pairwise(phases)), "one computes at a time"


@pytest.mark.slow
def test_under_naive_jobs_share_machines_and_take_no_turns(tmp_path: Path) -> None:
    def overlap(node: str) -> bool:
        return any(begins_s < ended_s for (_, ended_s), (begins_s, _) in pairwise(turns_on(node, tmp_path)))

    with both_on_two_machines(tmp_path, "--policy", "naive", "--param", "machines=2"):
        awaited(lambda: overlap("left") and overlap("right"), "both compute at once")
