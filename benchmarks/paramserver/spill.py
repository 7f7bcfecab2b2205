"""Input on disk: the share α that is found while a job runs, against every fixed one; also when the load changes.

One job (Lasso's kernel, which is faster than the disk, so that α matters) with less memory than input. `steady`: it has
its budget to itself. `changing`: it shares a cgroup with another process, which takes memory in the middle third of the
run; a fixed α that does not fit then is not kept, for the job would be killed, and is marked so. Needs root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from benchmarks.machine import ROOT, median, table
from hocket.agent.cgroup import MEMORY, Cgroup
from hocket.agent.node.containment import Containment, Wanted
from hocket.agent.protocol import RunKey, RunLimits

_MIB = 1 << 20
_MODULE = "benchmarks.paramserver.spill"
_NNZ = 100  # of a row
_FEATURES = 20_000
_MISSED = 0.06  # of α: it was not kept


class _Blocks(Sequence[Any]):
    """Sparse rows, made when they are asked for."""

    def __init__(self, count: int, size: int) -> None:
        self._count, self._rows = count, size // (12 * _NNZ)
        self.total_bytes = count * size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        from hocket.paramserver import DataBlock

        rng = np.random.default_rng(i)
        keys, feature = np.unique(rng.integers(0, _FEATURES, self._rows * _NNZ), return_inverse=True)
        data = {
            "starts": np.arange(0, self._rows * _NNZ + 1, _NNZ), "features": keys,
            "feature": feature.astype(np.int32), "value": rng.normal(size=self._rows * _NNZ),
            "label": rng.normal(size=self._rows), "parts": np.array([1 / self._count, 1 / (self._rows * self._count)]),
            "penalty_share": np.full(len(keys), 1 / self._count),
        }  # fmt: skip
        return DataBlock(f"block {i}", data)


def measured(quick: bool) -> dict[str, Any]:
    """Both loads."""
    size = {"blocks": 30 if quick else 40, "block_mib": 2 if quick else 4, "epochs": 9 if quick else 45}
    mem_mib = 250 if quick else 300  # of which Python with numba takes 190
    alphas = [0.0, 0.5, 1.0] if quick else [round(0.1 * i, 1) for i in range(11)]
    repetitions = 1 if quick else 2
    found: dict[str, Any] = {**size, "mem_mib": mem_mib, "steady": _series(size, mem_mib, alphas, repetitions, 0)}
    other_mib = 60 if quick else 110
    try:
        found["changing"] = _series(size, mem_mib, alphas, repetitions, other_mib)
        found["other_mib"] = other_mib
    except OSError as error:
        found["not_measured"] = f"changing: needs root and a memory cgroup ({error})"
    return found


def text(found: dict[str, Any]) -> list[str]:
    """As tables."""
    data_mib = found["blocks"] * found["block_mib"]
    lines = [f"INPUT ON DISK: {data_mib} MiB of input, {found['mem_mib']} MiB of memory for all, one job, one worker"]
    for load in ("steady", "changing"):
        if load not in found:
            continue
        runs = found[load]
        rows = [
            (_named(run["alpha"]), f"{run['epoch_ms']:.0f}", f"{run['least']:.2f}-{run['most']:.2f}",
             f"{run['peak_mib']:.0f}", _fate(run))
            for run in runs
        ]  # fmt: skip
        lines += ["", f"{load}: α, a mean epoch in ms, α as it was, peak of RSS in MiB", *table(("",) * 5, rows)]
        lines.append("  " + verdict(runs))
    return [*lines, found["not_measured"]] if "not_measured" in found else lines


def verdict(runs: list[dict[str, Any]]) -> str:
    """The share that was found, beside the best fixed one that was kept."""
    found = next(run for run in runs if run["alpha"] is None)
    fixed = [run for run in runs if run["alpha"] is not None and run["kept"]]
    if not fixed:
        return "no fixed α fits"
    best = min(fixed, key=lambda run: float(run["epoch_ms"]))
    ratio = found["epoch_ms"] / best["epoch_ms"]
    return f"found while it ran: {ratio:.2f} × the time of the best fixed one that fits, {_named(best['alpha'])}"


def _fate(run: dict[str, Any]) -> str:
    if run["killed"]:
        return "killed for want of memory"
    return "" if run["kept"] else "not kept: it does not fit"


def _named(alpha: float | None) -> str:
    return "found" if alpha is None else f"{alpha:.1f}"


def _series(
    size: dict[str, int], mem_mib: int, alphas: list[float], repetitions: int, other_mib: int
) -> list[dict[str, Any]]:
    """All of them in turn, several times; of each the median of the mean epochs."""
    runs: dict[float | None, list[dict[str, Any]]] = {alpha: [] for alpha in [None, *alphas]}
    for _ in range(repetitions):
        for alpha, done in runs.items():
            done.append(_run({**size, "mem_mib": mem_mib, "alpha": alpha}, other_mib))
    return [
        {
            "alpha": alpha, "epoch_ms": median([run["epoch_ms"] for run in done]), "runs": done,
            "least": min(run["least"] for run in done), "most": max(run["most"] for run in done),
            "peak_mib": max(run["peak_mib"] for run in done), "kept": all(run["kept"] for run in done),
            "killed": any(run["killed"] for run in done),
        }
        for alpha, done in runs.items()
    ]  # fmt: skip


def _run(job: dict[str, Any], other_mib: int) -> dict[str, Any]:
    """One job; beside it, from a third to two thirds of its epochs, a process that takes memory."""
    with _cgroup(job["mem_mib"] if other_mib else 0) as cgroup:
        folders = {} if cgroup is None else cgroup.folders
        command = [sys.executable, "-m", _MODULE, "_job", json.dumps({**job, "cgroup": folders})]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            epochs = _epochs(process.stdout, int(job["epochs"]), other_mib, folders)
        if process.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the job with α {job['alpha']} ended with {process.returncode}")
    shares, alpha = [epoch["share"] for epoch in epochs[1:]] or [1.0], job["alpha"]
    is_killed = process.returncode != 0
    return {
        # The first one makes ready.
        "epoch_ms": sum(epoch["ms"] for epoch in epochs[1:]) / max(1, len(epochs) - 1), "least": min(shares),
        "most": max(shares), "peak_mib": max((epoch["peak_mib"] for epoch in epochs), default=0.0),
        "killed": is_killed,
        "kept": not is_killed and (alpha is None or max(abs(share - alpha) for share in shares) < _MISSED),
        "epochs": [round(epoch["ms"]) for epoch in epochs], "shares": [round(epoch["share"], 2) for epoch in epochs],
    }  # fmt: skip


def _epochs(lines: IO[str], count: int, other_mib: int, folders: dict[str, str]) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    other: subprocess.Popen[str] | None = None
    try:
        for line in lines:
            found.append(json.loads(line))
            if other_mib and len(found) == count // 3:
                command = [sys.executable, "-m", _MODULE, "_other", json.dumps(folders), str(other_mib)]
                other = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=ROOT)
            if other is not None and len(found) == 2 * count // 3:
                _end(other)
                other = None
    finally:
        if other is not None:
            _end(other)
    return found


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    if process.wait():
        raise RuntimeError(f"the process that takes memory ended with {process.returncode}")


@contextmanager
def _cgroup(mem_mib: int) -> Iterator[Cgroup | None]:
    """A cgroup below ours with so much memory. Raises OSError where there can be none."""
    if not mem_mib:
        yield None
        return
    contained = Containment(Wanted.AUTO, f"spill-{os.getpid()}")
    made = contained.create(RunKey("spill", time.monotonic_ns()), "job", RunLimits(float(mem_mib), 0.0))
    if made is None or MEMORY not in made.folders:
        raise OSError(contained.text)
    try:
        yield made
    finally:
        contained.remove(made)
        contained.close()


def _job(given: str) -> None:
    """In a process of its own: train, and print a line for each epoch."""
    job = json.loads(given)
    if job["cgroup"]:
        Cgroup(job["cgroup"]).enter()
    from hocket.paramserver import EpochEnd
    from hocket.runtimes.paramserver.applications.lasso import LassoRegression
    from hocket.runtimes.paramserver.host_blocks import SpillOptions
    from hocket.runtimes.paramserver.launch_variables import LaunchVariables
    from hocket.runtimes.paramserver.memory_budget import peak_resident_bytes
    from hocket.runtimes.paramserver.training import train

    last_s, peak = time.perf_counter(), 0

    def tell(end: EpochEnd) -> None:
        nonlocal last_s, peak
        now_s, peak = time.perf_counter(), max(peak, peak_resident_bytes())
        assert end.spilled is not None
        said = {"ms": (now_s - last_s) * 1000, "share": end.spilled.share, "peak_mib": peak / _MIB}
        print(json.dumps(said), flush=True)
        last_s = now_s

    train(
        LassoRegression(_FEATURES, 1e-3), _Blocks(job["blocks"], job["block_mib"] * _MIB), workers=1,
        epochs=job["epochs"], objective_every=0, launch=LaunchVariables(), on_epoch=tell,
        spill=SpillOptions(job["mem_mib"] * _MIB, share=job["alpha"]),
    )  # fmt: skip


def _other(folders: str, mem_mib: str) -> None:
    """In a process of its own: take memory, some at a time, until the input ends."""
    Cgroup(json.loads(folders)).enter()
    taken = []
    for _ in range(int(mem_mib)):
        taken.append(b"x" * _MIB)
        time.sleep(0.01)
    sys.stdin.read()


if __name__ == "__main__":
    {"_job": _job, "_other": _other}[sys.argv[1]](*sys.argv[2:])
