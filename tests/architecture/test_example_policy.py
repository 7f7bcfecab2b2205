"""A policy in one file, in a folder that HOCKET_POLICIES names, is found by everything that uses policies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "policies"
NAME = "smallest"
LONGEST = 50


def run(*arguments: str) -> str:
    environment = {**os.environ, "HOCKET_POLICIES": str(FOLDER)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def told(*arguments: str) -> Any:
    return json.loads(run("-m", "hocket", *arguments, "--json"))


def test_it_is_one_short_file() -> None:
    assert len((FOLDER / f"{NAME}.py").read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_it_is_listed_with_its_parameters() -> None:
    assert NAME in {p["name"] for p in told("policies")["policies"]}
    assert [p["name"] for p in told("policies", NAME)["parameters"]] == ["patience_s"]


def test_without_the_folder_it_is_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hocket", "policies", NAME],
        env={k: v for k, v in os.environ.items() if k != "HOCKET_POLICIES"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert f"policy '{NAME}' is unknown" in done.stderr


def test_it_simulates_and_compares() -> None:
    alone = told("simulate", "demo", "--policy", NAME)
    assert alone["finished"] == alone["jobs"] == 61
    runs = told("compare", "demo", "fifo", NAME, f"{NAME}:patience_s=60")["runs"]
    fifo, patient, hasty = (r["summary"]["jct_mean_s"] for r in runs)
    assert patient == alone["jct_mean_s"] < hasty
    assert patient < fifo


def test_it_gives_reasons(tmp_path: Path) -> None:
    journal = tmp_path / "run.db"
    run("-m", "hocket", "simulate", "demo", "--policy", NAME, "--journal", str(journal))
    script = "import sys; from hocket.control.journal import SqliteJournal as J\n"
    script += "print(*sorted({r for c in J(sys.argv[1]) if c.plan for r in c.plan.reasons.values()}), sep='\\n')"
    reasons = run("-c", script, str(journal)).splitlines()
    assert "starts: no smaller job waits" in reasons
    assert any(r.startswith("waits: '") for r in reasons)


@pytest.mark.slow
def test_it_keeps_every_law_of_policies() -> None:
    tests = str(ROOT / "tests" / "laws" / "test_policies.py")
    shown = run("-m", "pytest", tests, "-k", NAME, "-p", "no:cacheprovider", "-p", "no:xdist")
    assert " passed" in shown
