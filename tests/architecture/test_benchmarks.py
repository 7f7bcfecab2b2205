"""The benchmarks run, and say with what they were made. How fast anything is, no test asserts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_every_benchmark_imports_what_there_is(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    # Without real traces, so that it is the same everywhere.
    environment = {**os.environ, "HOCKET_DATA": str(tmp_path_factory.mktemp("none"))}
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=1200)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_every_part_is_measured_and_every_simulation_ends(measured: dict[str, Any]) -> None:
    assert all(speed["finished"] == speed["jobs"] for speed in measured["speeds"])
    assert all(
        speed["ratio"] == pytest.approx(speed["jobs_per_cpu_s"] / speed["best_peer_jobs_per_cpu_s"])
        for speed in measured["speeds"]
    )
    assert measured["growth"]
    assert {"fifo", "las"} <= {d["policy"] for d in measured["decisions"]}
    assert all(d["asked"] for d in measured["decisions"])
    assert 0 < measured["summing"]["share"] < 1
    assert measured["journalling"]["per_s"] > 0


@pytest.mark.long
def test_numbers_carry_their_command_the_machine_and_the_date(measured: dict[str, Any]) -> None:
    assert measured["command"] == "python -m benchmarks --quick --json"
    assert all(speed["command"].startswith("hocket simulate '") for speed in measured["speeds"])
    assert measured["machine"].keys() >= {"cores", "memory_gib", "python", "date"}
    assert str(ROOT.parent) not in json.dumps(measured), "a path of this machine"
