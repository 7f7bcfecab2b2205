"""The eight jobs: two of each application, some heavy in COMP, some in COMM."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from hocket.runtimes.paramserver.generators import DataSetSize, generate_sized

HOSTS = 4
MEM_MIB = 3000.0
SIZES = (2, 3, 4)  # hosts that a job can have; on one alone there would be no COMM
_JOB_MIB = 350.0
_BLOCKS = 12  # of each worker: can be divided among 2, 3 and 4 hosts
_PROGRAM = Path(__file__).with_name("trained_job.py")


class RunFailed(RuntimeError):
    """A job did not finish, or the comparison cannot be prepared."""


class HostShape(Struct, frozen=True):
    """What hosts have, and how jobs use it. Results of other shapes cannot be compared."""

    cores: float = 0.4  # of each host: four of them leave a part of two cores to the controller
    workers: int = 1  # of each job on each host
    is_warm: bool = True  # whether jobs are prepared before they have hosts


class MixedJob(NamedTuple):
    """One of them. Every iteration is an epoch: all its data, and all of the model that this needs."""

    name: str
    application: str
    data: DataSetSize
    options: dict[str, Any]
    epochs: int

    def command(self, folder: Path, share: float, workers: int, input_cache: Path | str = "none") -> list[str]:
        """That trains it for a share of its epochs."""
        blocks = str(_BLOCKS * workers)
        words = [sys.executable, str(_PROGRAM), self.application, "--data", str(self.file(folder))]
        words += ["--workers", str(workers), "--blocks", blocks, "--batch", blocks, "--objective-every", "0"]
        words += ["--input-cache", str(input_cache)]
        for name, value in self.options.items():
            words += [f"--{name}", str(value)]
        return [*words, "--epochs", str(self.iterations(share))]

    def iterations(self, share: float) -> int:
        """How many it does."""
        return max(5, round(self.epochs * share))

    def file(self, folder: Path) -> Path:
        """Its input."""
        return folder / f"{self.name}.txt"

    def spec(self, folder: Path, share: float, shape: HostShape, input_cache: Path) -> dict[str, Any]:
        """As it is submitted. Each host has the file; they share the cache of input, as they share checkpoints."""
        return {
            "id": self.name, "kind": "parameter-server",
            "command": self.command(folder, share, shape.workers, input_cache),
            "cwd": "/", "sizes": list(SIZES), "gpus": 0, "cores": shape.cores, "mem_mib": _JOB_MIB, "grace_s": 60.0,
            "env": {"OPENBLAS_NUM_THREADS": "1"}, "warm": shape.is_warm,
        }  # fmt: skip


# In the order of submission.
JOBS = (
    MixedJob("lda-comp", "lda", DataSetSize(6_000, 600, 300, 20), {"topics": 200}, 45),
    MixedJob("lasso-comm", "lasso", DataSetSize(3_000, 160_000, 200), {}, 25),
    MixedJob("nmf-comp", "nmf", DataSetSize(5_000_000, 800, users=10_000, classes=8), {"rank": 128}, 45),
    MixedJob("mlr-comm", "mlr", DataSetSize(2_000, 5_000, 100, 10), {"classes": 40}, 35),
    MixedJob("mlr-comp", "mlr", DataSetSize(48_000, 500, 100, 10), {"classes": 150}, 45),
    MixedJob("nmf-comm", "nmf", DataSetSize(200_000, 4_000, users=2_000, classes=8), {"rank": 128}, 30),
    MixedJob("lasso-wide", "lasso", DataSetSize(12_000, 100_000, 200), {}, 55),
    MixedJob("lda-comm", "lda", DataSetSize(2_000, 5_000, 100, 20), {"topics": 120}, 25),
)


def make_data(folder: Path) -> None:
    """Generate what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [(number, job) for number, job in enumerate(JOBS) if not job.file(folder).exists()]
    if missing:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(_make_one, [folder] * len(missing), *zip(*missing, strict=True)))


def _make_one(folder: Path, number: int, job: MixedJob) -> None:
    generate_sized(job.application, job.file(folder), job.data, seed=number)


def compile_kernels(folder: Path) -> None:
    """Train a little of each application, and find groups once: numba keeps what it compiles; no run waits for it."""
    commands = [[sys.executable, "-c", "from hocket.policies.harmony.policy import compile_search; compile_search()"]]
    commands += [job.command(folder, 0.0, 1) for job in JOBS if job.name.endswith("-comm")]
    env = {**os.environ, "NNODES": "1", "NODE_RANK": "0"}
    children = [subprocess.Popen(c, env=env, stdout=subprocess.DEVNULL, cwd=folder) for c in commands]
    for child, command in zip(children, commands, strict=True):
        if child.wait():
            raise RunFailed(f"{' '.join(command)}: exit code {child.returncode}")
