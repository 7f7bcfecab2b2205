"""TME's estimates beside the GPU memory of real jobs: `python -m benchmarks.gpu_memory [--python /path/to/python]`.

A real controller runs small PyTorch models, written by hand (`gpu_memory_job.py`), at several batch sizes, one after
the other on one GPU. What it has learned of them is read from its journal as past jobs. Each model is held out whole,
and TME is asked for its memory from the other models on the same kind of data. Printed are the peak that the agent
measured, the memory that PyTorch says it reserved, the estimate as Rotary prints it (padded by 5 %) and with its
uncertainty; and in how many cases they are below the peak, of how few models. `--gpus 0` measures jobs on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.convergence import wilson
from benchmarks.gpu_memory_job import MODELS
from benchmarks.live import Controller
from benchmarks.machine import ROOT, Machine, machine, table
from hocket.control.journal import open_to_read
from hocket.estimators.training_memory import memory_mib, sufficient
from hocket.model.event import EpochEnded, JobFailed
from hocket.model.job import Job
from hocket.model.past_job import PastJob
from hocket.service.journal_history import past_jobs_of

_JOB = str(Path(__file__).with_name("gpu_memory_job.py"))
_PATIENCE_S = 900.0  # without a job that ends


class Compared(Struct, frozen=True):
    """One model at one batch size."""

    model: str
    dataset: str
    batch_size: int
    parameters: int
    peak_mib: float  # of the device, by the agent
    reserved_mib: float  # by PyTorch; 0 on a CPU
    estimate_mib: float  # from the other models
    sure_mib: float


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    gpu: str
    compared: list[Compared]
    unmeasured: list[str]  # jobs that ended without a peak, or failed


def compared(past: Sequence[PastJob], reserved: dict[tuple[str, int], float]) -> list[Compared]:
    """Each job by the jobs of other models; where there is no estimate it is left out."""
    found = []
    for job in past:
        others = [p for p in past if p.model != job.model]
        estimate = memory_mib(Job("held-out", model=job.model, traits=job.traits), others)
        if estimate is None or not job.mem_mib:
            continue
        batch_size, parameters = int(job.traits["batch_size"]), int(job.traits["parameters"])
        found.append(
            Compared(
                job.model, str(job.traits["dataset"]), batch_size, parameters, round(job.mem_mib, 1),
                reserved.get((job.model, batch_size), 0.0), round(estimate.mean, 1), round(sufficient(estimate), 1),
            )
        )  # fmt: skip
    return found


def run(options: argparse.Namespace, home: Path) -> Measured:
    """All jobs, one after the other."""
    here = machine()
    described = subprocess.run([options.python, _JOB, "--describe"], check=True, capture_output=True, text=True).stdout
    parameters = json.loads(described)
    names = [f"{model}/{size}" for size in options.batch_sizes for model in options.models]
    # A GPU is taken alone; without one, the jobs would share the machine, but each has its own memory there.
    shared = ["--cores", "1"] if not options.gpus else []
    controller = Controller(home, "--policy", "rotary", "--gpus", str(options.gpus), *shared)
    try:
        with closing(controller.connect()) as link:
            while not controller.call(link, "GET", "/v1/nodes")["nodes"]:
                time.sleep(0.1)
            gpu = controller.call(link, "GET", "/v1/nodes")["nodes"][0].get("gpu_kind", "")
            specs = []
            for name in names:
                model, size = name.split("/")
                traits = {"dataset": MODELS[model][0], "batch_size": float(size), "parameters": parameters[model]}
                command = [options.python, _JOB, "--model", model, "--batch-size", size, "--steps", str(options.steps)]
                specs.append(
                    {
                        "id": f"{model}-{size}", "command": command, "cwd": str(ROOT), "env": dict(os.environ),
                        "gpus": min(options.gpus, 1), "cores": 1.0, "model": model, "traits": traits,
                        "until": "for 3 epochs",
                    }
                )  # fmt: skip
            for told in controller.call(link, "POST", "/v1/jobs", {"jobs": specs})["jobs"]:
                if told["refused"]:
                    raise SystemExit(f"benchmarks: a job was refused: {told['refused']}")
        until = time.monotonic() + _PATIENCE_S
        left = len(names)
        while left and time.monotonic() < until:
            time.sleep(1.0)
            with closing(controller.connect()) as link:
                now = len(controller.call(link, "GET", "/v1/jobs")["jobs"])
            if now != left:
                print(f"benchmarks: {now} of {len(names)} jobs are left", file=sys.stderr, flush=True)
                left, until = now, time.monotonic() + _PATIENCE_S
    finally:
        controller.down()
    reserved: dict[tuple[str, int], float] = {}
    failed = set()
    with closing(open_to_read(str(home / "journal.db"))) as journal:
        cycles = list(journal)
        past = past_jobs_of(journal.header, journal.name, cycles)
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, EpochEnded) and "reserved_mib" in event.metrics:
                model, _dash, size = event.job.rpartition("-")
                reserved[model, int(size)] = max(reserved.get((model, int(size)), 0.0), event.metrics["reserved_mib"])
            elif isinstance(event, JobFailed):
                failed.add(event.job)
    known = {f"{p.model}-{int(p.traits['batch_size'])}" for p in past if p.mem_mib}
    missing = sorted({name.replace("/", "-") for name in names} - known) + sorted(f"{job} (failed)" for job in failed)
    if options.out is not None:
        shutil.copy(home / "journal.db", options.out / "gpu-memory-journal.db")
    sizes = " ".join(map(str, options.batch_sizes))
    command = f"python -m benchmarks.gpu_memory --gpus {options.gpus} --batch-sizes {sizes} --steps {options.steps}"
    return Measured(command, here, gpu, compared(past, reserved), missing)


def text(found: Measured) -> str:
    """One page."""
    here, cases = found.machine, found.compared
    lines = [
        f"{found.command}; {found.gpu or 'no GPU'}, {here.cores} cores, load {here.load} when it began, {here.date}",
        f"without a measured peak: {', '.join(found.unmeasured) or 'none'}",
        "",
    ]
    rows = [
        (
            c.model, c.dataset, f"{c.parameters / 1e6:.1f} M", str(c.batch_size), f"{c.peak_mib:,.0f}",
            f"{c.reserved_mib:,.0f}" if c.reserved_mib else "-", f"{c.estimate_mib:,.0f}", f"{c.sure_mib:,.0f}",
        )
        for c in sorted(cases, key=lambda c: (c.dataset, c.model, c.batch_size))
    ]  # fmt: skip
    titles = ("held out", "data", "parameters", "batch", "peak MiB", "PyTorch's", "TME", "TME, sure")
    lines += [*table(titles, rows), ""]
    if not cases:
        return "\n".join([*lines, "no estimate: at least two models on the same data are needed"])
    models = len({c.model for c in cases})
    rows = []
    for what, estimates in (
        ("TME, padded by 5 %", [(c.estimate_mib, c) for c in cases]),
        ("with its uncertainty", [(c.sure_mib, c) for c in cases]),
    ):
        below = sum(mib < c.peak_mib for mib, c in estimates)
        ratios = sorted(mib / c.peak_mib for mib, c in estimates)
        low, high = wilson(round(models * below / len(cases)), models)
        rows.append(
            (
                what, f"{below / len(cases):.0%}", f"{low:.0%} to {high:.0%}", f"{ratios[len(ratios) // 2]:.2f}",
                str(len(cases)), str(models),
            )
        )  # fmt: skip
    titles = ("estimate", "below the peak", "so few models: 95 %", "estimated/used", "cases", "models")
    return "\n".join([*lines, *table(titles, rows)])


def main(arguments: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch, for the jobs")
    parser.add_argument("--gpus", type=int, default=1, help="of the controller (1); 0: jobs run on the CPU")
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=list(MODELS), metavar="MODEL")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 128, 512], metavar="N")
    parser.add_argument("--steps", type=int, default=5, help="of each epoch")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the journal and gpu-memory.json are written")
    options = parser.parse_args(arguments)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hocket-gpu-") as name:
        found = run(options, Path(name))
    if options.out is not None:
        (options.out / "gpu-memory.json").write_bytes(msgspec.json.encode(found))
    print(text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
