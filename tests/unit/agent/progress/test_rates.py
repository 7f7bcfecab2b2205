"""The benchmark of the readers runs, and says with what it was made. How fast they are, no test asserts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.long
def test_every_kind_of_output_is_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.progress", "--quick", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=1200)
    measured = json.loads(done.stdout)
    assert measured["command"] == "python -m benchmarks.progress --quick --json"
    assert measured["machine"].keys() >= {"cores", "python", "date"}
    assert all(rate["mb_per_s"] > 0 for rate in measured["rates"])
    reports = {rate["output"]: rate["reports"] for rate in measured["rates"]}
    assert all((count == 0) == output.startswith("plain text") for output, count in reports.items())
