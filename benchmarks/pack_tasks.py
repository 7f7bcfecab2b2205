"""What `benchmarks.pack` measures on a GPU, task by task: each row is kept as it comes, and none is measured twice.

A machine with a GPU may be there for minutes only. So a task says how long it is expected to take, none begins that
would not end in time, and a sweep that is cut off goes on from its journal.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hocket_reproductions.pack.measurements import clock, in_turn_s, measure_peak, packed
from hocket_reproductions.pack.networks import NETWORKS
from hocket_reproductions.pack.separate_processes import separately, service
from hocket_reproductions.pack.setups import Setup

PAPERS = ("mobilenet-v2", "resnet-50", "densenet-121", "mlp-3")  # those whose goals are open first
PARTS = ("sweeps", "exact", "agreement", "steps", "processes", "memory")  # by worth; the first three need Hocket
EAGER_S = {  # a step of one model on an H200; the rest is as small as these
    "mlp-3": 0.002, "mobilenet-v2": 0.022, "resnet-50": 0.03, "densenet-121": 0.067,
}  # fmt: skip
UNITS_IN_ALL, STRETCHES = 1581, 206  # of Hyperband with R = 81 and η = 3
STRETCH_S = 0.2  # to make, load, judge and save a model, each time that it goes on
AGREEMENT_SEEDS = 5
SAVE_S = 15.0  # before the time is over a sweep is told to stop


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    device: str
    models: list[str]
    counts: list[int]
    budget_s: float
    unit: int  # steps of a sweep's unit; 0: as it is for the model
    resource: int  # R; 0: 81 on a GPU
    journals: Path | None
    tiny: bool  # small pictures and batches: to see whether everything runs

    def setup(self, name: str, batch: int | None = None) -> Setup:
        """A model of this kind, with its usual pictures and batch."""
        _, size, usual = NETWORKS[name]
        if self.tiny:
            return Setup(name, min(batch or usual, 4), 32, examples=8)
        return Setup(name, batch or usual, size, examples=2000 if size == 32 else 256)


@dataclass(frozen=True)
class Task:
    """One row: what it is known by, how long it is expected to take, and what measures it until a moment."""

    key: dict[str, Any]
    expected_s: float
    measure: Callable[[float], dict[str, Any]]
    resumes: bool = False  # It goes on where it was cut off.


class Kept:
    """Rows in a file, a line each; without a file they are measured again the next time."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def has(self, key: dict[str, Any]) -> bool:
        """Whether a row is known by this key."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row that is whole."""
        self.rows.append(row)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def measured(tasks: Iterator[Task], kept: Kept, until: float, say: Callable[[object], None]) -> None:
    """One task after another; what breaks, is cut off or has no time is said, and is not kept."""
    for task in tasks:
        if kept.has(task.key):
            continue
        left_s = until - time.monotonic()
        if left_s < (2 * SAVE_S if task.resumes else task.expected_s):
            say(f"no time left for {task.key}: {left_s:.0f} s, and it takes some {task.expected_s:.0f}")
            continue
        try:
            row = {**task.key, **_rounded(task.measure(until)), "gpu": torch.cuda.is_available()}
        except Exception as error:  # The rest of the table is wanted all the same.
            row = {**task.key, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        if "error" not in row and "cut_off" not in row:
            kept.add(row)
        say(row)


def tasks(parts: list[str], wanted: Wanted) -> Iterator[Task]:
    """All that the parts consist of, in their order."""
    for part in parts:
        yield from {
            "sweeps": sweeps, "exact": exact, "agreement": agreement, "steps": steps, "processes": processes,
            "memory": memory,
        }[part](wanted)  # fmt: skip


# -- parts --------------------------------------------------------------------------------------------------


def sweeps(wanted: Wanted) -> Iterator[Task]:
    """Hyperband over Table 2.3's space, unpacked and eager against packed: whole studies."""
    from hocket_reproductions.pack.cases import UNITS

    for name in (m for m in PAPERS if m in wanted.models):
        for policy in ("pack_gain", "pack_none"):
            key = {"part": "sweeps", "model": name, "policy": policy, "unit": wanted.unit, "resource": wanted.resource}

            def sweep(until: float, name: str = name, policy: str = policy) -> dict[str, Any]:
                return _swept(wanted, name, policy, until)

            whole_s = UNITS_IN_ALL * (wanted.unit or UNITS[name]) * EAGER_S[name] + STRETCHES * STRETCH_S
            expected_s = whole_s if policy == "pack_none" else whole_s / 3
            yield Task(
                key, min(expected_s, 60.0) if wanted.resource else expected_s, sweep, wanted.journals is not None
            )


def exact(wanted: Wanted) -> Iterator[Task]:
    """Small sweeps of which every number must be the same, packed or not: the digests are compared."""
    for name in (m for m in PAPERS if m in wanted.models):

        def both(until: float, name: str = name) -> dict[str, Any]:
            before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
            try:
                found = [_swept(wanted, name, p, until, small=True, exact=True) for p in ("pack_none", "pack_gain")]
            finally:
                torch.backends.cudnn.deterministic = before
            alone, joined_records = found
            same = alone["digest"] == joined_records["digest"]
            return {
                "same": same,
                "unpacked_s": alone["seconds"],
                "packed_s": joined_records["seconds"],
                **joined_records,
            }

        yield Task({"part": "exact", "model": name}, 2 * _small_s(name) + 20, both)


def agreement(wanted: Wanted) -> Iterator[Task]:
    """How often small sweeps in the fastest mode have one winner: unpacked twice, and packed.

    If convolutions are not deterministic, two unpacked sweeps differ too: packing is compared with that.
    """
    for seed in range(1 if wanted.tiny else AGREEMENT_SEEDS):
        for name in (m for m in PAPERS if m in wanted.models):

            def thrice(until: float, name: str = name, seed: int = seed) -> dict[str, Any]:
                policies = ("pack_none", "pack_none", "pack_gain")
                alone, again, packed = (_swept(wanted, name, p, until, small=True, seed=seed) for p in policies)
                return {
                    "again_agrees": alone["winner"] == again["winner"],
                    "packed_agrees": alone["winner"] == packed["winner"],
                    "winners": [found["winner"] for found in (alone, again, packed)],
                    "best": [found["best"] for found in (alone, again, packed)],
                    "digests": [found["digest"] for found in (alone, again, packed)],
                    "seconds": [round(found["seconds"], 2) for found in (alone, again, packed)],
                }

            yield Task({"part": "agreement", "model": name, "seed": seed}, 3 * _small_s(name), thrice)


def _small_s(name: str) -> float:
    """What a small sweep is expected to take unpacked."""
    return 78 * 4 * EAGER_S[name] + 25 * STRETCH_S


def _swept(
    wanted: Wanted, name: str, policy: str, until: float, *, small: bool = False, exact: bool = False, seed: int = 0
) -> dict[str, Any]:
    """One sweep; a small one keeps no journal."""
    from hocket_reproductions.pack.cases import study_of, swept

    sizes = {"unit": 4, "resource": 9} if small else {"unit": wanted.unit, "resource": wanted.resource}
    if small and wanted.tiny:
        sizes = {"unit": 1, "resource": 3}
    folder = wanted.journals / f"{name}-{policy}" if wanted.journals is not None and not small else None
    study = study_of(name, policy, seed, exact=exact, folder=folder, **sizes)
    now = clock(wanted.device)
    told = False

    def stepped(_steps: int) -> None:
        nonlocal told
        if not told and time.monotonic() > until - SAVE_S:
            told = True
            signal.raise_signal(signal.SIGINT)  # Its models are saved, and it goes on next time.

    began = now()
    try:
        study.run(stepped)
    except KeyboardInterrupt:
        if not told:
            raise
    seconds = study.seconds if folder is not None else now() - began  # With a journal: in all processes joined_records.
    found = swept(study, seconds)
    row: dict[str, Any] = {"seconds": seconds, "trials": found.trials, "steps": found.steps, "steps_a_unit": found.unit}
    if told:
        return row | {"cut_off": True, "steps_in_all": study.total_steps}
    values = [(t.number, r.units, r.metrics["value"]) for t in study.trials for r in t.results]
    digest = hashlib.sha256(repr(sorted(values)).encode()).hexdigest()[:12]
    return row | {"R": found.resource, "winner": found.winner, "best": repr(found.best), "digest": digest}


def steps(wanted: Wanted) -> Iterator[Task]:
    """The step time of n equal models: eager in turn, each a graph in turn, and packed."""
    device, budget_s = wanted.device, wanted.budget_s
    for name in wanted.models:
        for n in wanted.counts:

            def step(_until: float, name: str = name, n: int = n) -> dict[str, Any]:
                setup = wanted.setup(name)
                row: dict[str, Any] = {"batch": setup.batch, "eager_ms": in_turn_s(setup, n, device, budget_s) * 1e3}
                if device == "cuda":
                    try:
                        row["graph_in_turn_ms"] = in_turn_s(setup, n, device, budget_s, graphs=True) * 1e3
                    except torch.OutOfMemoryError:  # Each graph keeps its activations.
                        row["graph_in_turn"] = "does not fit"
                found = packed([setup] * n, device, budget_s)
                row["pack_ms"] = found.step_s * 1e3
                for against in ("eager", "graph_in_turn"):
                    if f"{against}_ms" in row:
                        row[f"to_{against}"] = row[f"{against}_ms"] / row["pack_ms"]
                row |= {"mode": found.mode, "load_s": found.load_s, "settle_s": found.settle_s}
                row["certificate"] = found.certificate
                row["modes_ms"] = {mode: round(s * 1e3, 3) for mode, s in found.modes_s.items()}
                return row

            yield Task({"part": "steps", "model": name, "n": n}, 10 + n * 60 * EAGER_S.get(name, 0.005), step)


def processes(wanted: Wanted) -> Iterator[Task]:
    """Each model in a process of its own, plainly and with the Multi-Process Service."""
    for name in wanted.models:
        for n in (n for n in wanted.counts if n <= 8):

            def apart(_until: float, name: str = name, n: int = n) -> dict[str, Any]:
                setup = wanted.setup(name)
                row: dict[str, Any] = {"processes_ms": separately(setup, n, wanted.budget_s).step_s * 1e3}
                with service() as environment:
                    if environment is None:
                        return row | {"mps_ms": "does not start"}
                    try:
                        found = separately(setup, n, wanted.budget_s, environment)
                    except Exception as error:
                        return row | {"mps_ms": str(error)}
                return row | {"mps_ms": found.step_s * 1e3, "start_s": found.start_s}

            yield Task({"part": "processes", "model": name, "n": n}, 40.0, apart)


def memory(wanted: Wanted) -> Iterator[Task]:
    """Predicted before loading, against the allocator's peak over some steps of the model alone."""
    for name in (m for m in PAPERS if m in wanted.models):
        for batch in sorted({NETWORKS[name][2], 64, 100}):

            def predicted(_until: float, name: str = name, batch: int = batch) -> dict[str, Any]:
                setup = (
                    wanted.setup(name, batch) if wanted.tiny else Setup(name, batch, NETWORKS[name][1], examples=batch)
                )
                found = measure_peak([setup], wanted.device)
                row: dict[str, Any] = {"predicted_mib": found.predicted_mib, "seen_mib": found.seen_mib}
                if found.seen_mib is not None:
                    row["error_share"] = found.predicted_mib / found.seen_mib - 1
                return row

            yield Task({"part": "memory", "model": name, "batch": batch}, 15.0, predicted)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
