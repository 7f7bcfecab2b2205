"""What `benchmarks.gpu_memory` makes of past jobs: each model is held out whole, and what is not measured is told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from benchmarks.gpu_memory import Measured, compared, text
from benchmarks.gpu_memory_job import MODELS
from benchmarks.machine import machine

from hocket.model.past_job import PastJob


def past(model: str, parameters: float, batch: float, mem_mib: float, dataset: str = "images") -> PastJob:
    traits: dict[str, float | str] = {"dataset": dataset, "batch_size": batch, "parameters": parameters}
    return PastJob(model=model, traits=traits, mem_mib=mem_mib)


def test_each_model_is_estimated_from_the_others_on_its_data() -> None:
    known = [past(f"m{n}", 1e6 + n, batch, 400.0 + 2.0 * batch) for n in range(3) for batch in (32.0, 128.0)]
    odd = [past("larger", 1e6, 32.0, 4000.0), past("alone", 1e6, 32.0, 70.0, "text"), past("gone", 1e6, 32.0, 0.0)]
    found = {(c.model, c.batch_size): c for c in compared([*known, *odd], {("m0", 32): 300.0})}
    assert {model for model, _size in found} == {"m0", "m1", "m2", "larger"}
    assert found["larger", 32].estimate_mib == pytest.approx(1.05 * 464, rel=0.01)
    assert (found["m0", 32].peak_mib, found["m0", 32].reserved_mib) == (464.0, 300.0)
    page = text(Measured("command", machine(), "H200", list(found.values()), ["gone-32"]))
    assert "without a measured peak: gone-32" in page
    assert page.splitlines()[-1].split()[-2:] == ["7", "4"]  # cases, models


def test_nothing_to_compare_is_said() -> None:
    page = text(Measured("command", machine(), "", compared([past("m", 1e6, 32.0, 70.0)], {}), []))
    assert "at least two models on the same data are needed" in page


@pytest.mark.long
def test_every_model_trains() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "benchmarks/gpu_memory_job.py"]
    done = subprocess.run([*command, "--describe"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout).keys() == MODELS.keys()
    small = ["--model", "transformer-256", "--batch-size", "2", "--steps", "1", "--epochs", "2", "--pace", "0"]
    done = subprocess.run([*command, *small], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith("epoch 2/2 loss=")
