"""Packed training against training in turn: `python -m benchmarks.pack [--device cuda] [--json] [--quick]`.

On the CPU: plain loops over each model with its own loader, one after another, against a pack. On a GPU: the step time
of n equal models eager in turn, each a CUDA graph in turn, as n processes, and packed through the public API with data
feeding; and predicted against seen peak memory. Each figure is the least of several rounds, for noise only adds. Needs
PyTorch only.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import Pack, Training
from hocket.runtimes.packing.measuring.memory_peaks import peak
from hocket.runtimes.packing.measuring.processes import separately, service
from hocket.runtimes.packing.measuring.setups import Setup, images
from hocket.runtimes.packing.measuring.stepping import endless, in_turn_s, packed, settled
from hocket.runtimes.packing.networks import NETWORKS, mlp3, small_cnn

PAPERS = ("mlp-3", "mobilenet-v2", "resnet-50", "densenet-121")
PARTS = ("memory", "steps", "processes", "sweeps")  # The last takes minutes, and needs all of Hocket.


def setup_of(name: str, batch: int | None = None) -> Setup:
    _, size, usual = NETWORKS[name]
    return Setup(name, batch or usual, size, examples=2000 if size == 32 else 256)


# -- CPU ----------------------------------------------------------------------------------------------------


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def loader(examples: TensorDataset, batch: int) -> DataLoader[Any]:
    return DataLoader(examples, batch, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1))


def pack_of(make: Callable[[], nn.Module], n: int, examples: TensorDataset, batch: int) -> Pack:
    """A pack of n equal models on the same data."""
    pack = Pack("cpu")
    for k in range(n):
        torch.manual_seed(k)
        model = make()
        data = loader(examples, batch)
        pack.load(Training(f"m{k}", model, optimiser(model), data, 1 << 30, loss=nn.CrossEntropyLoss(), seed=k))
    return pack


def alone_s(
    make: Callable[[], nn.Module], n: int, examples: TensorDataset, batch: int, steps: int
) -> Iterator[tuple[float, float]]:
    """Wall and CPU seconds a step of all n models, each trained by a plain loop of its own, one after another."""
    models = []
    for k in range(n):
        torch.manual_seed(k)
        model = make()
        models.append((model, optimiser(model), loader(examples, batch)))
    loss_function = nn.CrossEntropyLoss()
    streams = [endless(batches) for _, _, batches in models]
    while True:
        wall, cpu = time.perf_counter(), time.process_time()
        for (model, chosen, _), stream in zip(models, streams, strict=True):
            for _ in range(steps):
                inputs, targets = next(stream)
                chosen.zero_grad()
                loss_function(model(inputs), targets).backward()
                chosen.step()
        yield (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def on_cpu(quick: bool) -> list[dict[str, Any]]:
    """Gain by number of models; rounds of both alternate, so that others' work on the machine hits both."""
    rows = []
    grey = images(8, 512, channels=1)
    nets: list[tuple[str, Callable[[], nn.Module]]] = [
        ("mlp", lambda: mlp3(64, 64)),
        ("wide mlp", lambda: mlp3(64, 512)),
        ("cnn", lambda: small_cnn(1, 10, 8)),
    ]
    for name, make in nets:
        for n in (2, 4) if quick else (2, 4, 8, 16):
            steps = 4
            pack = pack_of(make, n, grey, 32)
            began = time.perf_counter()
            settled(pack)
            probe_s = time.perf_counter() - began
            sequential = alone_s(make, n, grey, 32, steps)
            next(sequential)
            apart, together = [], []
            until = time.perf_counter() + (0.3 if quick else 4.0)
            while len(apart) < 3 or (time.perf_counter() < until and len(apart) < 40):
                apart.append(next(sequential))
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(steps):
                    pack.step()
                together.append(((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps))
            (wall, cpu), (wall_packed, cpu_packed) = (
                (min(w for w, _ in found), min(c for _, c in found)) for found in (apart, together)
            )
            rows.append(
                {
                    "model": name,
                    "n": n,
                    "sequential_ms": round(wall * 1e3, 3),
                    "packed_ms": round(wall_packed * 1e3, 3),
                    "gain": round(wall / wall_packed, 2),
                    "cpu_gain": round(cpu / cpu_packed, 2),
                    "way": pack.way,
                    "probe_s": round(probe_s, 2),
                    "certificate": max((str(pack.certificate(m)) for m in pack.members), key=len),
                }
            )
            say(rows[-1])
    return rows


# -- GPU ----------------------------------------------------------------------------------------------------


def on_gpu(names: list[str], counts: list[int], budget_s: float, until: float) -> list[dict[str, Any]]:
    """One row for each network and count."""
    rows = []
    for name in names:
        setup = setup_of(name)
        for n in counts:
            if time.monotonic() > until:
                say(f"no time left for {name} × {n}")
                continue
            row: dict[str, Any] = {"model": name, "n": n, "batch": setup.batch}
            try:
                row["eager_ms"] = in_turn_s(setup, n, "cuda", budget_s) * 1e3
                row["graph_in_turn_ms"] = in_turn_s(setup, n, "cuda", budget_s, graphs=True) * 1e3
                found = packed([setup] * n, "cuda", budget_s)
                row["pack_ms"] = found.step_s * 1e3
                row["to_eager"], row["to_graph"] = (row[k] / row["pack_ms"] for k in ("eager_ms", "graph_in_turn_ms"))
                row |= {"way": found.way, "load_s": found.load_s, "settle_s": found.settle_s}
                row["certificate"] = found.certificate
                row["ways_ms"] = {way: round(s * 1e3, 3) for way, s in found.ways_s.items()}
            except Exception as error:  # the rest of the table is wanted all the same
                row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            rows.append(rounded(row))
            say(rows[-1])
    return rows


def memory(names: list[str]) -> list[dict[str, Any]]:
    """Predicted before loading, against the allocator's peak over eight steps of the model alone."""
    rows = []
    for name in names:
        for batch in sorted({setup_of(name).batch, 64, 100}):
            setup = Setup(name, batch, NETWORKS[name][1], examples=batch)
            found = peak([setup], "cuda")
            assert found.seen_mib is not None
            error = found.predicted_mib / found.seen_mib - 1
            row = {"model": name, "batch": batch, "predicted_mib": found.predicted_mib, "seen_mib": found.seen_mib}
            rows.append(rounded(row | {"error": error}))
            say(rows[-1])
    return rows


def processes(names: list[str], counts: list[int], budget_s: float) -> list[dict[str, Any]]:
    """Each model in a process of its own, plainly and with the Multi-Process Service."""
    rows = []
    for name in names:
        for n in counts:
            row: dict[str, Any] = {"model": name, "n": n}
            row["processes_ms"] = separately(setup_of(name), n, budget_s).step_s * 1e3
            with service() as environment:
                if environment is not None:
                    try:
                        found = separately(setup_of(name), n, budget_s, environment)
                        row |= {"mps_ms": found.step_s * 1e3, "start_s": found.start_s}
                    except Exception as error:
                        row["mps_ms"] = str(error)
                else:
                    row["mps_ms"] = "does not start"
            rows.append(rounded(row))
            say(rows[-1])
    return rows


def sweeps(names: list[str]) -> list[dict[str, Any]]:
    """Hyperband over Table 2.3's space, unpacked and eager against packed: whole studies."""
    from hocket.reproductions.pack_sweep import sweep_of

    rows = []
    for name in names:
        for policy, exact in (("pack_none", False), ("pack_gain", False), ("pack_gain", True)):
            found = sweep_of(name, policy, 0, lambda _: None, lambda _: None, exact=exact).sweep
            assert found is not None
            row: dict[str, Any] = {"model": name, "policy": policy, "exact": exact, "seconds": found.seconds}
            row |= {"trials": found.trials, "steps": found.steps, "unit": found.unit}
            rows.append(rounded(row) | {"winner": found.winner, "best": found.best})
            say(rows[-1])
    return rows


# -- both ---------------------------------------------------------------------------------------------------


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


def say(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as text, one column for each key."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key != "ways_ms"))
    cells = [keys, *([str(row.get(key, "")) for key in keys] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(keys))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def main(arguments: list[str]) -> None:
    """Measure, and print tables or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pack", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="small inputs: seconds instead of minutes")
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="MODEL")
    parser.add_argument("--counts", nargs="+", type=int, default=[2, 4, 8, 16, 32], help="models in a pack")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for each figure")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin nothing new on the GPU after so long")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:3], metavar="PART", help=", ".join(PARTS))
    chosen = parser.parse_args(arguments)
    found: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.pack", *arguments]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if chosen.device == "cpu":
        torch.set_num_threads(1)  # Small tensors are computed faster by one thread.
        found["threads"] = 1
        found["cpu"] = on_cpu(chosen.quick)
    else:
        found["gpu"] = torch.cuda.get_device_name()
        until = time.monotonic() + 60 * chosen.minutes
        if "memory" in chosen.only:
            found["memory"] = memory([m for m in chosen.models if m in PAPERS])
        if "steps" in chosen.only:
            found["steps"] = on_gpu(chosen.models, chosen.counts, chosen.budget, until)
        if "processes" in chosen.only:
            found["processes"] = processes(chosen.models, [n for n in chosen.counts if n <= 8], chosen.budget)
        if "sweeps" in chosen.only:
            found["sweeps"] = sweeps([m for m in chosen.models if m in PAPERS])
    if chosen.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key}:\n{table(value)}\n" if isinstance(value, list) else f"{key}: {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
