"""Training and a query share one core under `rotary`: epoch by epoch, by what past jobs have shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.paced_data import PACED, write_paced_data

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")

TRAIN = str(Path(__file__).parents[2] / "examples" / "train_numpy.py")


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[LiveController]:
    write_paced_data(tmp_path)
    with LiveController(
        tmp_path, "--policy", "rotary", "--param", "epoch_s=0.1", "--gpus", "0", "--cores", "1"
    ) as found:
        found.begin()
        yield found
        found.down(grace_s=0.0)


def submit_training(controller: LiveController, name: str, seed: int) -> None:
    command = (sys.executable, TRAIN, "--epochs", "60", "--epoch-seconds", "0.2", "--seed", str(seed))
    controller.types("submit", "-n", name, "--gpus", "0", "--until", "acc >= 84% within 60 epochs", "--", *command)


def shown(controller: LiveController, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(controller.types("show", name, "--json").stdout)
    return found


def reasons(controller: LiveController, name: str) -> list[str]:
    """What was decided about a job, oldest first."""
    told = json.loads(controller.types("why", name, "--json").stdout)
    return [line["reason"] for line in told["past"] if line["reason"]]


@pytest.mark.slow
def test_training_that_is_likely_to_end_soon_goes_before_a_query_which_stays_in_memory(
    controller: LiveController,
) -> None:
    submit_training(controller, "first", 0)
    awaited(lambda: shown(controller, "first")["state"] == "attained", "the first job attains its goal")
    assert "nothing is known yet of when it reaches acc 84%" in reasons(controller, "first")[0]
    controller.kill()
    controller.begin()  # What the first has shown is still known.

    data = str(controller.root / "data.duckdb")
    controller.types("submit", "--query", PACED, "--data", data, "--until", "acc >= 99.99%", "-n", "query")
    awaited(lambda: "acc" in shown(controller, "query")["metrics"], "its first batch")
    submit_training(controller, "second", 1)
    awaited(lambda: shown(controller, "query")["kept"].startswith("in memory"), "the query makes way")
    awaited(lambda: shown(controller, "second")["state"] == "attained", "the second job attains its goal")
    awaited(lambda: shown(controller, "query")["state"] == "running", "the query goes on")
    assert shown(controller, "query")["attempts"] == 1
    granted = next(reason for reason in reasons(controller, "second") if reason.startswith("granted"))
    assert "% sure of acc 84% in time, in " in granted
    assert "; 'query' needs " in granted
    paused = next(reason for reason in reasons(controller, "query") if reason.startswith("paused"))
    assert paused.startswith("paused at the end of an epoch: 'second' goes first: it needs ")
    controller.types("stop", "query")
    awaited(lambda: shown(controller, "query")["state"] == "stopped", "it is over")

    history = [json.loads(line) for line in controller.types("journal", "history").stdout.splitlines()]
    assert [past["kind"] for past in history] == ["training", "training", "query"]
    assert history[0]["traits"] == {"program": "train_numpy.py"}
    assert history[1]["points"][-1][1] >= 0.84
    assert history[2]["mem_mib"] > 10  # what the query took, by its agent
