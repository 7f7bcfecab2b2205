"""What metrics cost: `python -m benchmarks.metrics [--quick] [--json]`.

What counting and timing add to each cycle and each request, and a scrape of a controller with many live jobs of many
owners.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine
from hocket.control.ports import Cycle
from hocket.executors.agents.executor import agents
from hocket.model.event import EpochEnded, Event, JobSubmitted, NodeJoined
from hocket.model.job import Job, Launch
from hocket.model.resources import Node
from hocket.policies import find
from hocket.service.engine import CycleTimes, Engine
from hocket.service.metrics import Metrics

OWNERS = 200  # more than have series of their own


class MetricsCost(Struct, frozen=True):
    """All of one run; times are CPU times."""

    command: str
    machine: Machine
    jobs: int
    nodes: int
    cycle_us: float  # added to a cycle with one event and a decision
    request_us: float  # added to a request
    scrape_ms: float
    series: int
    scrape_kib: float


def main(arguments: list[str]) -> None:
    """Measure, and print some lines or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics")
    parser.add_argument("--quick", action="store_true", help="few jobs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    jobs, nodes = (200, 4) if chosen.quick else (10_000, 100)
    found = measured(jobs, nodes, " ".join(["python -m benchmarks.metrics", *arguments]))
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def measured(jobs: int, nodes: int, command: str) -> MetricsCost:
    """A controller with so many live jobs, some of which have devices."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        engine = Engine(str(Path(folder) / "journal.db"), agents(300.0), find("las").bound())
        with closing(engine):
            metrics = Metrics(engine)
            engine.start()
            post(engine, lambda now_s: [NodeJoined(now_s, Node(f"node{n}", gpus=8)) for n in range(nodes)])
            for first in range(0, jobs, 500):
                numbers = range(first, min(jobs, first + 500))
                post(engine, lambda now_s, numbers=numbers: [JobSubmitted(now_s, job(n)) for n in numbers])  # type: ignore[misc]
            cycle = Cycle(1.0, (EpochEnded(1.0, "job-1", 1, {}),))
            times = CycleTimes(0.003, 0.001, (0.0005,))

            def count_cycle() -> None:
                metrics._see(1, cycle)
                metrics._time(times)

            body = metrics.answer().body
            series = sum(not line.startswith(b"#") for line in bytes(body).splitlines())
            return MetricsCost(
                command, machine(), len(engine.snapshot.jobs), nodes, 1e6 * cpu_s(count_cycle, 20_000),
                1e6 * cpu_s(lambda: metrics.count_request("POST /v1/jobs", 200, 0.002), 20_000),
                1e3 * cpu_s(metrics.answer, 20), series, len(body) / 1024,
            )  # fmt: skip


def job(number: int) -> Job:
    """One of many owners' jobs."""
    return Job(f"job-{number}", owner=f"owner-{number % OWNERS}", command=("true",), launch=Launch(cwd="/"))


def post(engine: Engine, make: Callable[[float], list[Event]]) -> None:
    """Have events in the journal."""
    engine.executor.post(lambda _state, now_s: make(now_s)).result(600)


def cpu_s(call: Callable[[], object], times: int) -> float:
    """CPU seconds of a call of this thread, on average."""
    began = time.thread_time()
    for _ in range(times):
        call()
    return (time.thread_time() - began) / times


def text(found: MetricsCost) -> str:
    """A few lines."""
    here = found.machine
    return "\n".join(
        [
            f"{found.command}  ({here.cores} cores, load {here.load:g}, Python {here.python}, {here.date})",
            f"{found.jobs:,} live jobs of {OWNERS} owners on {found.nodes} nodes; CPU times",
            f"  a cycle costs {found.cycle_us:.1f} µs more, a request {found.request_us:.1f} µs",
            f"  a scrape takes {found.scrape_ms:.1f} ms: {found.series} series, {found.scrape_kib:.0f} KiB",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
