"""What a sidecar costs: `python -m benchmarks.sidecar [--quick] [--json]`.

How long it takes until the first line of the user's program, cold and prepared, beside the bare interpreter's own time;
what many idle sidecars take of memory and CPU; how fast a job can print through one.
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
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.agent import run_folder
from hocket.agent.logs import read_log

FIRST_LINE = "import time\nprint(time.monotonic_ns(), flush=True)\n"


class Start(Struct, frozen=True):
    """Medians in ms, each round one of each kind after another."""

    rounds: int
    python_ms: float  # from the start of a bare interpreter to the program's first line
    cold_ms: float  # from the launch of a sidecar to that line
    beyond_ms: float  # the difference
    prepared_ms: float  # from the order to start to that line
    goal_beyond_ms: float = 100.0
    goal_prepared_ms: float = 20.0


class Idle(Struct, frozen=True):
    """Sidecars whose jobs sleep. They look for progress in what jobs print, as is the default."""

    sidecars: int
    pss_mib: float  # of one, shared memory divided among the processes that share it
    rss_mib: float
    private_mib: float
    watched_s: float
    cores: float  # of all joined_records
    goal_pss_mib: float = 9.0
    goal_cores: float = 0.02


class Printing(Struct, frozen=True):
    """A job that prints as fast as it can, into a file, through a sidecar, and through one that looks for progress."""

    mb: int
    file_s: float
    sidecar_s: float
    sidecar_cpu_s: float
    reading_s: float
    reading_cpu_s: float


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    start: Start
    idle: Idle
    printing: Printing


class Job:
    """One attempt in a folder of its own."""

    def __init__(self, folder: Path, argv: list[str], **fields: Any) -> None:
        self.folder = str(folder / os.urandom(6).hex())
        spec = {"job": "bench", "mark": os.urandom(16).hex(), "argv": argv, "cwd": str(folder), **fields}
        run_folder.create(self.folder, spec)
        self.launched_s = time.monotonic()
        self.sidecar = run_folder.launch(self.folder)

    def wait_for(self, event: str) -> None:
        """Wait until it is written down."""
        while not any(e["event"] == event for e in self.events()):
            time.sleep(0.001)

    def events(self) -> list[dict[str, Any]]:
        """All that the sidecar has written down so far."""
        path = Path(self.folder, run_folder.EVENTS)
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def start(self) -> None:
        """The order that a prepared job waits for."""
        self.launched_s = time.monotonic()
        run_folder.send(self.folder, {"do": "start", "env": {"CUDA_VISIBLE_DEVICES": "0"}})

    def end(self) -> None:
        """Kill it, and wait for its sidecar."""
        run_folder.send(self.folder, {"do": "kill"})
        self.sidecar.wait()

    def to_first_line_ms(self) -> float:
        """From the launch, or the order to start, to what the program printed first."""
        self.sidecar.wait()
        return int(read_log(self.folder)[1]) / 1e6 - self.launched_s * 1e3


def starts(folder: Path, rounds: int) -> Start:
    """Each kind once a round, so that a busy machine is as busy for all."""
    (folder / "first_line.py").write_text(FIRST_LINE)
    program = [sys.executable, "first_line.py"]
    bare, cold, prepared = [], [], []
    for _ in range(rounds):
        began_s = time.monotonic()
        done = subprocess.run(program, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        bare.append(int(done.stdout) / 1e6 - began_s * 1e3)
        cold.append(Job(folder, program).to_first_line_ms())
        job = Job(folder, program, warm=True)
        job.wait_for("prepared")
        job.start()
        prepared.append(job.to_first_line_ms())
    python_ms, cold_ms, prepared_ms = (round(median(times), 2) for times in (bare, cold, prepared))
    return Start(rounds, python_ms, cold_ms, round(cold_ms - python_ms, 2), prepared_ms)


def idle(folder: Path, count: int, watched_s: float) -> Idle:
    """Memory and CPU time of so many sidecars, once all their jobs run."""
    jobs = [Job(folder, ["sleep", "3600"], progress={}) for _ in range(count)]
    try:
        for job in jobs:
            job.wait_for("started")
        time.sleep(min(watched_s, 2.0))  # The first look at what a job uses is past.
        pids = [job.sidecar.pid for job in jobs]
        before = sum(map(_cpu_s, pids))
        time.sleep(watched_s)
        cores = (sum(map(_cpu_s, pids)) - before) / watched_s
        sizes = [_memory_mib(pid) for pid in pids]
        pss, rss, private = (round(sum(size[n] for size in sizes) / count, 2) for n in range(3))
        return Idle(count, pss, rss, private, watched_s, round(cores, 5))
    finally:
        for job in jobs:
            job.end()


def printing(folder: Path, mb: int) -> Printing:
    """Lines as training scripts print them."""
    line = "step 1234 loss 0.4321 lr 3e-4 12.3 it/s"
    argv = ["sh", "-c", f"yes '{line}' | head -c {mb}000000"]
    began_s = time.monotonic()
    with open(folder / "printed", "wb") as file:
        subprocess.run(argv, stdout=file, check=True)
    file_s = time.monotonic() - began_s
    found = []
    for config in (None, {}):
        job = Job(folder, argv, progress=config)
        _pid, _status, used = os.wait4(job.sidecar.pid, 0)
        job.sidecar.returncode = 0
        events = job.events()
        # The job's own CPU time is among its children's, which `used` has too once they were waited for.
        own_s = used.ru_utime + used.ru_stime - events[-1]["cpu_s"]
        found += [round(events[-1]["ran_s"], 3), round(own_s, 2)]
    return Printing(mb, round(file_s, 3), *found)


def _cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _memory_mib(pid: int) -> tuple[float, float, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return kib["Pss"] / 1024, kib["Rss"] / 1024, (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024


def page(found: Measured) -> str:
    """For people."""
    start, idle, printing = found.start, found.idle, found.printing
    return "\n".join(
        [
            f"{found.command}  ({found.machine.cores} cores, load {found.machine.load}, Python {found.machine.python}, "
            f"{found.machine.date})",
            f"to the first line, medians of {start.rounds}: bare interpreter {start.python_ms} ms, "
            f"cold {start.cold_ms} ms (beyond the interpreter {start.beyond_ms} ms; goal {start.goal_beyond_ms:g}), "
            f"prepared {start.prepared_ms} ms (goal {start.goal_prepared_ms:g})",
            f"{idle.sidecars} idle sidecars: {idle.pss_mib} MiB PSS each (goal {idle.goal_pss_mib:g}; "
            f"RSS {idle.rss_mib}, private {idle.private_mib}); "
            f"all joined_records {idle.cores:.2%} of a core over {idle.watched_s:g} s (goal {idle.goal_cores:.0%})",
            f"{printing.mb} MB printed: into a file {printing.file_s} s, through a sidecar {printing.sidecar_s} s "
            f"({printing.sidecar_cpu_s} CPU-s), looking for progress {printing.reading_s} s "
            f"({printing.reading_cpu_s} CPU-s)",
        ]
    )


def main(arguments: list[str]) -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sidecar", description="What a sidecar costs.")
    parser.add_argument("--quick", action="store_true", help="a few of each: seconds instead of a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    here = machine()
    folder = Path(tempfile.mkdtemp(prefix="hocket-bench-"))
    try:
        found = Measured(
            " ".join(["python -m benchmarks.sidecar", *arguments]),
            here,
            starts(folder, 3 if chosen.quick else 30),
            idle(folder, *((5, 1.0) if chosen.quick else (100, 30.0))),
            printing(folder, 20 if chosen.quick else 1000),
        )
    finally:
        shutil.rmtree(folder)
    print(msgspec.json.encode(found).decode() if chosen.json else page(found))


if __name__ == "__main__":
    main(sys.argv[1:])
