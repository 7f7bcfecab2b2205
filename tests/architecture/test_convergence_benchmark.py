"""The held-out evaluation of OptStop runs on any file of curves, and counts what it says it counts."""

from __future__ import annotations

import json
import subprocess
import sys
from math import exp
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def evaluated(path: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.convergence", str(path), "--json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=1200)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two smooth models, and one that leaps after a third of its epochs."""
    path = tmp_path_factory.mktemp("curves") / "curves.csv"
    rows = ["source,app,batch_size,metric"]
    for size in (1, 2):
        for k in range(1, 31):
            rows.append(f"x,smooth,{size},{0.9 - 0.8 * exp(-k / (3 + size))}")
            rows.append(f"x,falls,{size},{10 + 90 * exp(-k / (4 + size))}")
            rows.append(f"x,leaps,{size},{(0.5 if k <= 10 else 0.62) - 0.4 * exp(-k / (1 + size / 2))}")
            rows.append(f"again,smooth,{size},{0.9 - 0.8 * exp(-k / (3 + size))}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_each_curve_counts_once_and_every_goal_is_reached_or_missed(curves: Path) -> None:
    found = evaluated(curves, "--leaps", "0", "1")
    assert found["models"] == {"falls": 2, "leaps": 2, "smooth": 2}
    for tally in found["tallies"]:
        count = 6 if tally["model"] == "all" else 2
        assert (tally["goals_reached"], tally["goals_missed"]) == (5 * count, 5 * count)
        assert tally["false_stops"] <= tally["goals_reached"]
        assert 0 <= tally["saved"] <= 1


def test_a_leap_that_no_other_model_has_makes_false_stops_unless_leaps_are_allowed_for(curves: Path) -> None:
    found = evaluated(curves, "--leaps", "0", "1")
    false = {(t["model"], t["leaps"]): t["false_stops"] for t in found["tallies"]}
    assert false["leaps", 0.0] > 0
    assert false["leaps", 1.0] == 0
    assert false["smooth", 0.0] == false["falls", 0.0] == 0


@pytest.mark.long
def test_the_calibration_is_drawn(curves: Path, tmp_path: Path) -> None:
    evaluated(curves, "--leaps", "0.2", "--plot", str(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"convergence.png", "convergence.svg"}
