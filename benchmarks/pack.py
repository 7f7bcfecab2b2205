"""Packed training against training in turn: `python -m benchmarks.pack [--device cuda] [--json] [--quick]`.

On the CPU: plain loops over each model with its own loader, one after another, against a pack; each figure is the least
of several rounds, for noise only adds. On a GPU: the step time of n equal models eager in turn, each a CUDA graph in
turn, and packed through the public API with data feeding; and predicted against seen peak memory. Needs PyTorch only.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.pack import Pack, Training
from hocket.runtimes.packing.networks import NETWORKS, mlp3, small_cnn

RATE, MOMENTUM = 0.01, 0.9


def images(size: int, examples: int, channels: int = 3) -> TensorDataset:
    """Generated ones, with classes that depend on them."""
    rolls = torch.Generator().manual_seed(0)
    x = torch.randn(examples, channels, size, size, generator=rolls)
    return TensorDataset(x, (x.mean((1, 2, 3)) * 1000).long() % 10)


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)


def loader(examples: TensorDataset, batch: int) -> DataLoader[Any]:
    return DataLoader(examples, batch, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1))


def packed(
    make: Callable[[], nn.Module], n: int, examples: TensorDataset, batch: int, device: str, **more: Any
) -> Pack:
    """A pack of n equal models on the same data."""
    pack = Pack(device, **more)
    for k in range(n):
        torch.manual_seed(k)
        model = make()
        pack.load(
            Training(
                f"m{k}", model, optimiser(model), loader(examples, batch), 1 << 30, loss=nn.CrossEntropyLoss(), seed=k
            )
        )
    return pack


# -- CPU ----------------------------------------------------------------------------------------------------


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


def endless(batches: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from batches


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
            steps, rounds = (5, 3) if quick else (20, 5)
            pack = packed(make, n, grey, 32, "cpu")
            while not pack.times_s():  # The probe's own cost is not counted; its steps are real ones, though.
                pack.step()
            for _ in range(3):
                pack.step()
            sequential = alone_s(make, n, grey, 32, steps)
            next(sequential)
            apart, together = [], []
            for _ in range(rounds):
                apart.append(next(sequential))
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(steps):
                    pack.step()
                together.append(((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps))
            (wall, cpu), (wall_packed, cpu_packed) = (
                (min(w for w, _ in found), min(c for _, c in found)) for found in (apart, together)
            )
            worst = max((str(pack.certificate(m)) for m in pack.members), key=len)
            rows.append(
                {
                    "model": name,
                    "n": n,
                    "sequential_ms": round(wall * 1e3, 3),
                    "packed_ms": round(wall_packed * 1e3, 3),
                    "gain": round(wall / wall_packed, 2),
                    "sequential_cpu_ms": round(cpu * 1e3, 3),
                    "packed_cpu_ms": round(cpu_packed * 1e3, 3),
                    "cpu_gain": round(cpu / cpu_packed, 2),
                    "way": pack.way,
                    "certificate": worst,
                }
            )
            say(rows[-1])
    return rows


# -- GPU ----------------------------------------------------------------------------------------------------


def timed(step: Callable[[], None], budget_s: float) -> float:
    """Seconds a call, over as many calls as the budget has room for, at least five."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    once = time.perf_counter() - began
    calls = max(5, min(200, int(budget_s / once)))
    began = time.perf_counter()
    for _ in range(calls):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / calls


class InTurn:
    """Plain PyTorch: n models on one pinned batch, copied once a step; eager, or each a CUDA graph."""

    def __init__(self, make: Callable[[], nn.Module], n: int, batch: list[Tensor], graphs: bool) -> None:
        self.pinned = [t.pin_memory() for t in batch]
        self.static = [t.cuda() for t in batch]
        self.models = [make().cuda() for _ in range(n)]
        self.optimisers = [optimiser(model) for model in self.models]
        self.loss = nn.CrossEntropyLoss()
        self.graphs: list[torch.cuda.CUDAGraph] = []
        if graphs:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for k in range(n):
                    for _ in range(3):
                        self.one(k)
            torch.cuda.synchronize()
            for k in range(n):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.one(k)
                self.graphs.append(graph)

    def one(self, k: int) -> None:
        self.optimisers[k].zero_grad(set_to_none=True)
        self.loss(self.models[k](self.static[0]), self.static[1]).backward()
        self.optimisers[k].step()

    def step(self) -> None:
        for there, here in zip(self.static, self.pinned, strict=True):
            there.copy_(here, non_blocking=True)
        if self.graphs:
            for graph in self.graphs:
                graph.replay()
        else:
            for k in range(len(self.models)):
                self.one(k)


def clean() -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def on_gpu(names: list[str], counts: list[int], budget_s: float, until: float) -> list[dict[str, Any]]:
    """One row for each network and count."""
    rows = []
    for name in names:
        make, size, batch = NETWORKS[name]
        examples = images(size, 2000 if size == 32 else 256)
        first = [t[:batch].clone() for t in examples.tensors]
        for n in counts:
            if time.monotonic() > until:
                say(f"no time left for {name} × {n}")
                continue
            row: dict[str, Any] = {"model": name, "n": n, "batch": batch}
            try:
                for kind, graphs in (("eager_ms", False), ("graph_in_turn_ms", True)):
                    clean()
                    baseline = InTurn(make, n, first, graphs)
                    row[kind] = round(timed(baseline.step, budget_s) * 1e3, 3)
                    del baseline
                clean()
                row |= pack_row(make, n, examples, batch, budget_s)
            except Exception as error:  # the rest of the table is wanted all the same
                row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            rows.append(row)
            say(row)
    return rows


def pack_row(
    make: Callable[[], nn.Module], n: int, examples: TensorDataset, batch: int, budget_s: float
) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    pack = packed(make, n, examples, batch, "cuda")
    loaded = time.perf_counter()
    while not pack.times_s():
        pack.step()
    for _ in range(6):  # graphs of the chosen way, and the certificate
        pack.step()
    ready = time.perf_counter()
    step_s = timed(pack.step, budget_s)
    worst = max(pack.certificates.values(), key=lambda c: c.max_ulp, default=None)
    return {
        "pack_ms": round(step_s * 1e3, 3),
        "way": pack.way,
        "ways_ms": {way: round(s * 1e3, 3) for way, s in pack.times_s().items()},
        "load_s": round(loaded - began, 2),
        "probe_s": round(ready - loaded, 2),
        "certificate": str(worst) if worst else "turn: bitwise",
        "peak_mib": round(torch.cuda.max_memory_allocated() / (1 << 20)),
        "predicted_mib": round(pack.memory.total(pack.way.startswith("graph")) / (1 << 20)),
    }


def memory(names: list[str]) -> list[dict[str, Any]]:
    """Predicted before loading, against the allocator's peak over eight steps of the model alone."""
    rows = []
    for name in names:
        make, size, usual = NETWORKS[name]
        pack = Pack("cuda", way="turn", keep_every=2)
        for batch in sorted({usual, 64, 100}):
            clean()
            torch.manual_seed(0)
            examples = images(size, batch)
            torch._C._cuda_clearCublasWorkspaces()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            model = make()
            began = time.perf_counter()
            training = Training(
                f"b{batch}", model, optimiser(model), loader(examples, batch), 8, loss=nn.CrossEntropyLoss()
            )
            predicted = pack.predict(training).peak + pack.memory.workspace
            took_s = time.perf_counter() - began
            pack.load(training)
            for _ in pack.run():
                pass
            seen = torch.cuda.max_memory_allocated() - before
            rows.append(
                {
                    "model": name,
                    "batch": batch,
                    "predicted_mib": round(predicted / (1 << 20), 1),
                    "seen_mib": round(seen / (1 << 20), 1),
                    "error": round(predicted / seen - 1, 3),
                    "dry_run_s": round(took_s, 2),
                }
            )
            say(rows[-1])
            del model, training
    return rows


# -- both ---------------------------------------------------------------------------------------------------


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
    chosen = parser.parse_args(arguments)
    found: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.pack", *arguments]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    if chosen.device == "cpu":
        found["cpu"] = on_cpu(chosen.quick)
    else:
        found["gpu"] = torch.cuda.get_device_name()
        until = time.monotonic() + 60 * chosen.minutes
        found["memory"] = memory(
            [m for m in chosen.models if m in ("mlp-3", "mobilenet-v2", "resnet-50", "densenet-121")]
        )
        found["steps"] = on_gpu(chosen.models, chosen.counts, chosen.budget, until)
    if chosen.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key}:\n{table(value)}\n" if isinstance(value, list) else f"{key}: {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
