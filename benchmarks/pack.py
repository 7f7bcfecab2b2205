"""Packed training against training in turn: `python -m benchmarks.pack [--device cuda] [--json] [--quick]`.

On the CPU: plain loops over each model with its own loader, one after another, against a pack. On a GPU: the step time
of n equal models eager in turn, each a CUDA graph in turn, as n processes, and packed through the public API with data
feeding; predicted against seen peak memory; and whole sweeps, packed and not (`pack_tasks.py`). Each figure is the
least of several rounds, for noise only adds. All but the sweeps need PyTorch only.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import Pack, Training
from hocket_reproductions.pack.measurements import endless, settled
from hocket_reproductions.pack.networks import NETWORKS, mlp3, small_cnn
from hocket_reproductions.pack.setups import images

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
            apart, joined_records = [], []
            until = time.perf_counter() + (0.3 if quick else 4.0)
            while len(apart) < 3 or (time.perf_counter() < until and len(apart) < 40):
                apart.append(next(sequential))
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(steps):
                    pack.step()
                joined_records.append(((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps))
            (wall, cpu), (wall_packed, cpu_packed) = (
                (min(w for w, _ in found), min(c for _, c in found)) for found in (apart, joined_records)
            )
            rows.append(
                {
                    "model": name,
                    "n": n,
                    "sequential_ms": round(wall * 1e3, 3),
                    "packed_ms": round(wall_packed * 1e3, 3),
                    "gain": round(wall / wall_packed, 2),
                    "cpu_gain": round(cpu / cpu_packed, 2),
                    "mode": pack.mode,
                    "probe_s": round(probe_s, 2),
                    "certificate": max((str(pack.certificate(m)) for m in pack.members), key=len),
                }
            )
            say(rows[-1])
    return rows


# -- both ---------------------------------------------------------------------------------------------------


def say(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as text, one column for each key."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key != "modes_ms"))
    cells = [keys, *([str(row.get(key, "")) for key in keys] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(keys))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def main(arguments: list[str]) -> None:
    """Measure, and print tables or one object."""
    from benchmarks.pack_tasks import PARTS, Kept, Wanted, measured, tasks

    parser = argparse.ArgumentParser(prog="python -m benchmarks.pack", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="small inputs: seconds instead of minutes")
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="MODEL")
    parser.add_argument("--counts", nargs="+", type=int, default=[2, 4, 8, 16, 32], help="models in a pack")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for each figure")
    parser.add_argument("--minutes", type=float, default=9.0, help="nothing begins that would not end within so many")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of the GPU's: {', '.join(PARTS)}")
    parser.add_argument("--unit", type=int, default=0, help="steps that are one unit of a sweep")
    parser.add_argument("--resource", type=int, default=0, help="R of the sweeps; 81 on a GPU")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="rows are kept here, and not measured again")
    parser.add_argument("--journals", type=Path, metavar="DIR", help="sweeps are kept here, and go on where they were")
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
    else:
        found["gpu"] = torch.cuda.get_device_name()
    if chosen.device == "cpu" and chosen.only is None:
        found["cpu"] = on_cpu(chosen.quick)
    else:  # On a CPU only to see whether it runs: `--quick --only …`.
        wanted = Wanted(
            chosen.device, chosen.models, chosen.counts, chosen.budget, chosen.unit, chosen.resource, chosen.journals,
            chosen.quick,
        )  # fmt: skip
        kept, parts = Kept(chosen.kept), chosen.only or [p for p in PARTS if p not in ("sweeps", "exact", "agreement")]
        measured(tasks(parts, wanted), kept, time.monotonic() + 60 * chosen.minutes, say)
        for part in PARTS:
            if rows := [row for row in kept.rows if row["part"] == part]:
                found[part] = rows
    if chosen.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key}:\n{table(value)}\n" if isinstance(value, list) else f"{key}: {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
