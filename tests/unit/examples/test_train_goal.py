"""examples/train_goal.py: what it prints is read as progress, and a stop in between changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.children import child
from tests.unit.examples.in_process import printed_in_this_process

pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_goal.py"
PATIENCE_S = 300.0


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, str(EXAMPLE), "--epochs", "3", "--checkpoint-dir", str(folder), *options]


def epochs(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("epoch")]


@pytest.mark.long
def test_a_job_that_is_stopped_within_an_epoch_learns_what_it_would_have_learned(tmp_path: Path) -> None:
    whole = printed_in_this_process(EXAMPLE, "--epochs", "3")
    assert len(epochs(whole)) == 3
    with child(command(tmp_path / "cut", "--pace", "2"), stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        first = job.stdout.readline()
        os.kill(job.pid, signal.SIGTERM)
        rest = job.stdout.read()
        assert job.wait(PATIENCE_S) == 128 + signal.SIGTERM
    again = subprocess.run(command(tmp_path / "cut"), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert again.stdout.startswith("resuming from epoch ")
    assert epochs(first + rest + again.stdout) == epochs(whole)
