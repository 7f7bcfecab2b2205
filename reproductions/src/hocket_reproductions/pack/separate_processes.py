"""The same models as separate processes on one GPU, plainly or through NVIDIA's Multi-Process Service.

    python -m hocket_reproductions.pack.separate_processes NETWORK BATCH SIZE SECONDS

is one of them: it says `ready` when it is warm, trains when it reads `go`, and prints its steps and seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hocket_reproductions.pack.measurements import Alone, device_here, wait
from hocket_reproductions.pack.setups import Setup


@dataclass(frozen=True)
class Separately:
    """What n processes together did."""

    step_s: float  # the time in which each of them makes one step, on average
    start_s: float  # until the last of them was ready


def separately(setup: Setup, n: int, seconds: float, environment: dict[str, str] | None = None) -> Separately:
    """One process a model, all at the same time."""
    command = [sys.executable, "-m", __spec__.name, setup.network, str(setup.batch), str(setup.size), str(seconds)]
    began = time.perf_counter()
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        for _ in range(n)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"a process of {n} with {setup.network} did not come up")
        start_s = time.perf_counter() - began
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        rates = []
        for process in processes:
            assert process.stdout is not None
            steps, took = process.stdout.readline().split()
            rates.append(int(steps) / float(took))
            process.wait()
    finally:
        for process in processes:
            process.kill()
            process.communicate()  # Its pipes are closed, too.
    return Separately(n / sum(rates), start_s)


@contextmanager
def service() -> Iterator[dict[str, str] | None]:
    """The Multi-Process Service, for processes with this environment; None where it does not start."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        there = {**os.environ, **environment}
        started = subprocess.run([control, "-d"], env=there, capture_output=True, check=False).returncode == 0
        try:
            yield environment if started else None
        finally:
            if started:
                subprocess.run([control], input=b"quit\n", env=there, capture_output=True, check=False, timeout=30)


def main(arguments: list[str]) -> None:
    """One of the processes."""
    network, batch, size, seconds = arguments
    device = device_here()
    torch.set_num_threads(1)
    model = Alone(Setup(network, int(batch), int(size)), device)
    for _ in range(5):
        model.step()
    wait(device)
    print("ready", flush=True)
    sys.stdin.readline()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < float(seconds):
        model.step()
        steps += 1
        if steps % 10 == 0:
            wait(device)  # Else a queue of launches would outlast the time.
    wait(device)
    print(steps, time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
