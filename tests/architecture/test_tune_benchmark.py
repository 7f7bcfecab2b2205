"""The sweep of `benchmarks.tune` runs, and says what was left out. Speed is not asserted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_sweep_is_run_and_a_tuner_that_is_not_there_is_left_out() -> None:
    command = [sys.executable, "-m", "benchmarks.tune", "--quick", "--json", "--only", "hocket, packed", "ray tune"]
    if importlib.util.find_spec("ray") is not None:
        command.remove("ray tune")  # It takes minutes.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=1200)
    found = json.loads(done.stdout)
    ours = found["rows"][0]
    assert (ours["name"], ours["trials"], ours["steps"]) == ("hocket, packed", 17, 345)
    assert all(row["left_out"] == "ray is not installed" for row in found["rows"][1:])
    assert found["command"].startswith("python -m benchmarks.tune --quick")
    assert found["machine"].keys() >= {"cores", "memory_gib", "python", "date"}
