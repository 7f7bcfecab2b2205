"""The number of processes that a command asks its launcher for, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import hocket

TORCHRUN = ["python", "-m", "torch.distributed.run"]
LAUNCH = ["python", "-u", "-m", "torch.distributed.launch"]
ACCELERATE = ["accelerate", "launch"]


def spec(*words: str) -> tuple[dict[str, Any], str]:
    result = hocket("submit", "--dry-run", *words)
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["jobs"]
    return found, result.stderr


@pytest.mark.parametrize(
    ("command", "sizes", "gpus", "max_nodes"),
    [
        ([*TORCHRUN, "--nproc_per_node=2", "train.py"], [2], 1, 1),
        ([*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "4", "train.py"], [8], 1, 2),
        ([*TORCHRUN, "--nproc_per_node=gpu", "train.py"], [1], 1, None),
        ([*TORCHRUN, "train.py", "--nproc_per_node=2"], [1], 1, None),  # the script's own option
        ([*TORCHRUN, "--tee", "3", "--nproc_per_node=2", "train.py"], [1], 2, None),  # We do not replace this one.
        ([*LAUNCH, "--nproc_per_node=2", "train.py"], [1], 2, None),
        ([*ACCELERATE, "--num_processes", "2", "train.py"], [1], 2, None),
        ([*ACCELERATE, "--num_machines=2", "--num_processes", "4", "train.py"], [1], 1, None),
        (["python", "train.py", "--num_processes", "2"], [1], 1, None),
    ],
)
def test_a_launcher_says_how_many_gpus_if_its_user_does_not(
    command: list[str], sizes: list[int], gpus: int, max_nodes: int | None
) -> None:
    found, warned = spec("--", *command)
    assert (found["sizes"], found["gpus"], found.get("max_nodes")) == (sizes, gpus, max_nodes)
    assert ("--num_processes 4 starts" in warned) == ("--num_machines=2" in command)


def test_torchrun_itself_is_known_by_its_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchrun").write_text("#!/usr/bin/env python3\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert spec("--", "torchrun", "--standalone", "--nproc_per_node=2", "train.py")[0]["sizes"] == [2]


@pytest.mark.parametrize(
    ("gpus", "command", "warning"),
    [
        ("2", [*TORCHRUN, "--nproc_per_node=2", "t.py"], ""),
        ("4", [*TORCHRUN, "--nproc_per_node=2", "t.py"], "--nproc_per_node 2 is not used: Hocket starts one process"),
        ("1,2", [*TORCHRUN, "--nproc_per_node=2", "t.py"], "for each replica, and the job has 1 or 2"),
        ("4", [*ACCELERATE, "--num_processes=2", "t.py"], "--num_processes 2 starts 2 processes whatever"),
        ("4", [*ACCELERATE, "--num_processes=2", "t.py"], "and it asks for 4 GPUs"),
        ("2", [*LAUNCH, "--nproc_per_node", "2", "t.py"], ""),
    ],
)
def test_numbers_that_differ_are_both_named(gpus: str, command: list[str], warning: str) -> None:
    warned = spec("--gpus", gpus, "--", *command)[1]
    assert warning in warned
    assert bool(warned) == bool(warning)
