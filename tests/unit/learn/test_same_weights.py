"""The same setup gives the same weights: with other processes, threads and processors, and after a kill."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest
from tests.children import child

from hocket.cli.simulation.recording import Recording
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.learn.imitation import Recorded, imitate
from hocket.learn.training import STATE, WEIGHTS, LearningState, TrainingSetup, processes, train
from hocket.learn.windows import Window, workload_of
from hocket.policies import find
from hocket.policies.mlfs.weights_file import LearnedWeights, MadeBy, encoded

FIT = """
import sys
from tests.unit.learn.test_same_weights import fit
sys.stdout.buffer.write(fit())
"""
TRAIN = """
import sys
from pathlib import Path
from hocket.learn.training import TrainingSetup, processes, train
if __name__ == "__main__":
    setup = TrainingSetup(journal=sys.argv[1], generations=50, population=4, windows=1, validation=1)
    train(setup, Path(sys.argv[2]), 2, lambda _progress: None)
"""


def fit() -> bytes:
    """What is fitted to as many rows as a training has: enough for a product of matrices to be divided."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(30_000, 12)) * rng.uniform(0.1, 3.0, 12)
    priority = np.tanh(columns @ rng.normal(size=12)) + columns[:, 2] + rng.normal(0.0, 0.1, 30_000)
    started = np.zeros(30_000, dtype=bool)
    network = imitate(Recorded(np.arange(30_000) // 20, columns, priority, started), 0)
    return encoded(LearnedWeights(network, MadeBy("c", "d", 0, "2026-11-18")))


def test_threads_and_processors_do_not_change_what_is_fitted():
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell", "PYTHONPATH": os.getcwd()}
    there = subprocess.run([sys.executable, "-c", FIT], env=env, capture_output=True, check=True)
    assert there.stdout == fit()


def test_processes_of_a_training_compute_with_one_thread(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with processes(1, lambda _progress: None) as run:
        assert run(os.getenv, ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"], "") == ["1", "1"]
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.fixture
def journal(tmp_path):
    load = workload_of(Window("w", 5, 20, 2, 1.4))
    policy, path = find("mlf_h").bound(), tmp_path / "week.db"
    with Recording(path, Header("mlf_h", policy.settings, load.nodes, 1, load.name)) as kept:
        simulate(load, load.nodes, policy, seed=1, journal=kept)
    return str(path)


def test_a_training_that_is_killed_ends_with_the_weights_of_one_that_is_not(journal, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    state = tmp_path / "killed" / STATE
    with child([sys.executable, str(script), journal, str(tmp_path / "killed")]) as killed:
        while not state.exists() or not _evolution(state).generation:
            assert killed.poll() is None
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    generations = _evolution(state).generation + 1
    setup = TrainingSetup(journal=journal, generations=generations, population=4, windows=1, validation=1)
    for name in ("killed", "whole"):
        train(setup, tmp_path / name, 1, lambda _progress: None)
    killed_weights, whole_weights = (_but_for_the_date(tmp_path / name / WEIGHTS) for name in ("killed", "whole"))
    assert killed_weights == whole_weights
    assert _evolution(state) == _evolution(tmp_path / "whole" / STATE)  # Mostly no later generation is better here.


def _evolution(path):
    return msgspec.json.decode(path.read_bytes(), type=LearningState).evolution


def _but_for_the_date(path):
    return [line for line in path.read_text().splitlines() if '"date"' not in line]
