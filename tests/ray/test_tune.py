"""Trials of Ray Tune as jobs: their reports reach Tune, and the job of a trial that Tune ends is stopped."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.children import child
from tests.live.controller import LiveController, awaited, running
from tests.whole_lines import whole_lines

PROGRAM = """
import json
import sys
import ray
from ray import tune
from hocket.ray import SubmissionError
from hocket.ray.tune import trainable

def train(config):
    import time
    for n in range(1, config["epochs"] + 1):
        time.sleep(0.2)
        tune.report({"score": config["rate"] * n, "note": "a text"})
    return {"score": config["rate"] * 100}

def falls_behind(_trial, result):
    return result["score"] < 1 and result["training_iteration"] >= 3

def tuned(work, **space):
    run = tune.RunConfig(storage_path=sys.argv[1], stop=falls_behind, verbose=0)
    found = tune.Tuner(work, param_space=space, run_config=run).fit()
    assert not found.errors, found.errors
    return [[r.config["rate"], r.metrics["training_iteration"], r.metrics["score"]] for r in found]

try:
    trainable(train, gpu=1)
except SubmissionError as error:
    refused = str(error)
ray.init("local", num_cpus=0, object_store_memory=80 << 20, include_dashboard=False)  # no core is left for trials
functions = tuned(trainable(train, gpus=1), rate=tune.grid_search([2, 0.1]), epochs=4)
code = "import hocket, os; rate = int(os.environ['HOCKET_TUNE_RATE']); "
code += "[hocket.report(epoch=n, score=n * rate / {rate}) for n in (1, 2)]"
commands = tuned(trainable([sys.executable, "-c", code], name="command", gpus=1), rate=tune.grid_search([5]))
code = "import hocket; hocket.report(epoch=1, score=7); raise SystemExit(3)"
run = tune.RunConfig(storage_path=sys.argv[1], verbose=0)
(broken,) = tune.Tuner(trainable([sys.executable, "-c", code], name="broken", retries=0), run_config=run).fit()
errors = [broken.metrics["score"], "is over (failed)" in str(broken.error)]
print(json.dumps([refused, functions, commands, errors]), flush=True)
tuned(trainable(train, name="endless", gpus=1), rate=tune.grid_search([2, 3]), epochs=100000)
"""


@pytest.fixture(autouse=True)
def tune() -> Any:
    return pytest.importorskip(
        "ray.tune", reason="Ray Tune is not installed: `make test-ray` installs it", exc_type=ImportError
    )


@pytest.mark.ray
def test_trials_of_ray_tune_are_jobs_which_are_stopped_when_tune_ends_them_or_is_killed(tmp_path):
    with running(tmp_path / "root", "--gpus", "2", "--policy", "fifo") as controller:
        # All that Ray starts is found by that folder; Ray's own files have paths that are too long for sockets there.
        env = {**os.environ, "HOCKET_HOME": str(controller.home), "TMPDIR": str(controller.root), "RAY_TMPDIR": "/tmp"}
        words = [sys.executable, "-c", PROGRAM, str(tmp_path / "results")]
        with (tmp_path / "out").open("wb") as out, child(words, env=env, stdout=out, stderr=out) as program:
            awaited(
                lambda: (
                    any(line.startswith('["') for line in whole_lines(tmp_path / "out")) or program.poll() is not None
                ),
                "two studies are over",
            )
            assert program.poll() is None, (tmp_path / "out").read_text()
            (said,) = [line for line in whole_lines(tmp_path / "out") if line.startswith('["')]
            refused, functions, commands, errors = json.loads(said)
            assert refused == "gpu is no option of a job"
            (good, reports, score), (bad, at, low) = functions
            assert (good, reports, score) == (2, 5, 200.0)  # Four by `tune.report`, and what it returned.
            assert (bad, at, low) == (0.1, 3, pytest.approx(0.3))
            assert commands == [[5, 2, 2.0]]  # by a placeholder and by a variable
            assert errors == [7, True]
            assert sorted(states(controller, "train")) == ["finished", "stopped"]  # in the order of their submission
            assert states(controller, "command") == ["finished"]

            awaited(lambda: states(controller, "endless") == ["running", "running"], "trials run")
            program.kill()
            awaited(lambda: states(controller, "endless") == ["stopped", "stopped"], "they are stopped")


def states(controller: LiveController, study: str) -> list[str]:
    """Of the jobs of a study's trials."""
    return [row["state"] for name, row in controller.jobs().items() if name.startswith(f"{study}-")]


def test_reports_that_a_resumed_job_makes_again_are_passed_on_once() -> None:
    from hocket.ray.tune import new_reports

    def said(*epochs: int) -> list[dict[str, Any]]:
        return [{"epoch": epoch, "step": 0, "metrics": {"loss": 1.0 / epoch, "gone": None}} for epoch in epochs]

    last, found = new_reports(said(1, 2, 3), (-1.0, -1.0))
    assert found == [{"epoch": n, "loss": 1.0 / n} for n in (1, 2, 3)]
    last, found = new_reports(said(2, 3, 2, 3, 4), last)
    assert [report["epoch"] for report in found] == [4]
    assert new_reports(said(3, 4), last) == ((4.0, 0.0), [])


def test_a_function_finds_the_checkpoint_that_it_reported_before_it_was_paused(
    tmp_path, monkeypatch, capsys, tune
) -> None:
    from ray.train._internal import session

    from hocket.ray.trial_session import run_trial

    monkeypatch.setenv("HOCKET_CHECKPOINT_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(session, "_session", None)
    (tmp_path / "kept").mkdir()
    begun = []

    def train(config: dict[str, Any]) -> None:
        found = tune.get_checkpoint()
        first = int((Path(found.path) / "epoch").read_text()) if found is not None else 0
        begun.append(first)
        for epoch in range(first + 1, config["epochs"] + 1):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "epoch").write_text(str(epoch))
                tune.report({"acc": epoch / 10}, checkpoint=tune.Checkpoint.from_directory(folder))

    run_trial(train, {"epochs": 2}, "t")
    run_trial(train, {"epochs": 3}, "t")  # as the next attempt of the job does
    assert begun == [0, 2]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"report {n}" for n in (1, 2, 3)
    ]
