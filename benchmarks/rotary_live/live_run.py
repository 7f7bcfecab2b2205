"""Queries on a real controller: submitted as they arrive, until the last has ended."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.live import Controller
from benchmarks.rotary_live.drawing import Drawn
from benchmarks.rotary_live.lone_runs import name_of
from benchmarks.rotary_live.outcome import Ran, counted
from hocket.control.journal import open_to_read
from hocket.job_input.read_job import read_job
from hocket.model.event import JobSubmitted
from hocket.policies.registry import BoundPolicy

_PATIENCE_S = 900.0


@contextmanager
def controller_on(cpus: Sequence[int], home: Path, *options: str) -> Iterator[Controller]:
    """A controller which, with its agent and all jobs, has these cores of the machine to itself."""
    home.mkdir(exist_ok=True)
    before = os.sched_getaffinity(0)
    # Of this thread alone; processes inherit it from the thread that starts them.
    os.sched_setaffinity(0, cpus)
    try:
        found = Controller(home, "--gpus", "0", "--cores", str(len(cpus)), *options)
    finally:
        os.sched_setaffinity(0, before)
    try:
        yield found
    finally:
        found.down()


class Submitter:
    """Submits queries to a controller, and waits until they have ended."""

    def __init__(self, controller: Controller, data: Path, texts: dict[int, str], mem: str) -> None:
        self._controller, self._data, self._texts, self._mem = controller, data, texts, mem
        while not self._call("GET", "/v1/nodes")["nodes"]:  # It listens before its agent says hello.
            time.sleep(0.1)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Over a connection of its own: between two arrivals an idle one may be closed."""
        with closing(self._controller.connect()) as link:
            return self._controller.call(link, method, path, body)

    def submit(self, job_id: str, query: str, threads: str, until: str = "") -> None:
        """Submit a query."""
        sql = self._texts[int(query.removeprefix("q"))].strip().rstrip(";")
        said: dict[str, object] = {
            "name": job_id, "query": sql, "data": str(self._data), "model": query, "threads": threads,
        }  # fmt: skip
        said |= {"until": until} if until else {}
        said |= {"mem": self._mem} if self._mem else {}
        spec = read_job(said, os.getcwd(), dict(os.environ)).spec
        told = self._call("POST", "/v1/jobs", {"jobs": [spec]})["jobs"]
        if told[0]["refused"]:
            raise SystemExit(f"query '{job_id}' was refused: {told[0]['refused']}")

    def wait(self, what: str) -> None:
        """Until no job is left."""
        until = time.monotonic() + _PATIENCE_S
        while self._call("GET", "/v1/jobs")["jobs"]:
            if time.monotonic() > until:
                raise SystemExit(f"{what}: not over after {_PATIENCE_S:.0f} s")
            time.sleep(0.1)


Submitting = Callable[[Controller], Submitter]


def run_alone(cpus: Sequence[int], home: Path, queries: Iterable[str], submitting: Submitting, threads: int) -> Path:
    """Each query once, one after the other, on so many threads; the journal."""
    with controller_on(cpus[:threads], home, "--policy", "fifo") as controller:
        submitter = submitting(controller)
        for query in queries:
            submitter.submit(name_of(query, threads), query, str(threads))
            submitter.wait(f"'{query}' alone")
            print(f"benchmarks: {query} ran alone on {threads}", file=sys.stderr, flush=True)
    return home / "journal.db"


def run_live(
    cpus: Sequence[int], home: Path, bound: BoundPolicy, queries: Sequence[Drawn], past: Path, submitting: Submitting
) -> tuple[Ran, list[float]]:
    """One policy with real queries; and when they really arrived."""
    policy = bound.policy.name
    options = [word for name, value in bound.settings.items() for word in ("--param", f"{name}={json.dumps(value)}")]
    if bound.policy.reads_past_jobs:
        options += ["--history", str(past)]
    with controller_on(cpus, home, "--policy", policy, *options) as controller:
        submitter, began_s = submitting(controller), time.monotonic()
        for n, query in enumerate(queries):
            time.sleep(max(0.0, began_s + query.at_s - time.monotonic()))
            until = f"acc >= {100 * query.accuracy:g}% within {query.deadline_s:g}s"
            submitter.submit(query.id, query.query, f"1-{len(cpus)}", until)
            if (n + 1) % 10 == 0 or n + 1 == len(queries):
                print(f"benchmarks: {home.name}: {n + 1} of {len(queries)} arrived", file=sys.stderr, flush=True)
        submitter.wait(policy)
    with closing(open_to_read(str(home / "journal.db"))) as journal:
        cycles = list(journal)
        begun = [e.at_s for cycle in cycles for e in cycle.events if isinstance(e, JobSubmitted)]
        return counted(journal.header, cycles), [at_s - begun[0] for at_s in begun]
