"""A shortened Table 3.1 of Rotary on real queries, live and simulated: `python -m benchmarks.rotary_live [POLICY …]`.

For each policy a real controller is started on two cores, and queries of TPC-H are submitted to it as they arrive: they
are drawn as those of `workloads/rotary.py`, with gaps and deadlines shortened by one factor. First each query that will
come is run alone, once: that is the past of the policies, and how long queries take on this machine. The same arrivals
then run in the simulator, with the accuracies of the table of measured batches and these times. Printed are attained
queries by class, pauses by where the state was kept, and runs that began anew. A policy is `rotary` or
`rotary:suspend=disk`. Queries without intervals (q13, q16, q21) are left out: a goal is refused for them. `--keep DIR`
keeps the data and the journals; `--json` prints one object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.live import HOCKET, Controller
from benchmarks.machine import Machine, machine, table
from benchmarks.query.cost import generated, tpch_queries
from hocket.cli.simulation.scenario import bound_policy
from hocket.control.journal import open_to_read
from hocket.executors.simulated import simulate
from hocket.job_input.read_job import read_job
from hocket.model.criterion import Duration, Goal
from hocket.model.event import EpochEnded, JobPaused, JobStarted, JobSubmitted, PastJobsGiven, ProgressReported
from hocket.model.past_job import PastJob
from hocket.model.resources import Node
from hocket.model.view import Costs
from hocket.policies.registry import BoundPolicy
from hocket.reports.account import account
from hocket.workloads.past_jobs_file import read_past_jobs
from hocket.workloads.rotary import CLASSES, GAP_S, measured_queries, query_truth, rotary_workload, stretch
from hocket.workloads.truth import Submission, Workload

CORES = 2
POLICIES = ("rotary", "edf")
_PATIENCE_S = 900.0


class Drawn(Struct, frozen=True):
    """One query that will come."""

    id: str
    query: str
    at_s: float
    accuracy: float
    deadline_s: float


class Alone(Struct, frozen=True):
    """A query that ran alone, once."""

    start_s: float  # until its process had its data open
    run_s: float  # all its batches


class Ran(Struct, frozen=True):
    """What came of all queries."""

    attained: dict[str, int]
    jobs: dict[str, int]
    pauses: dict[str, int]  # by where the state was kept
    starts: int  # of processes, beside the first of each
    mean_s: float  # from arrival to end


class Compared(Struct, frozen=True):
    """One policy."""

    policy: str
    live: Ran
    simulated: Ran


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    scale: float
    gap_s: float
    start_s: float
    slower: float  # than the CPU times of the table
    compared: list[Compared]


def has_intervals(query: str) -> bool:
    """Whether a goal for its accuracy is accepted; where all is read at once or in groups, the last answer is exact."""
    found = measured_queries()[query]
    return found.mode != "sampled" or any(batch.promised is not None for batch in found.orders[0][:-1])


def drawn(seed: int, count: int, gap_s: float) -> list[Drawn]:
    """The first queries of the simulated workload; times are shortened by one factor."""
    able = [s for s in rotary_workload("aqp", seed).submissions if has_intervals(s.job.model)]
    found = []
    for submission in able[:count]:
        goal = submission.job.criterion
        assert isinstance(goal, Goal)
        assert isinstance(goal.deadline, Duration)
        faster = gap_s / GAP_S
        found.append(
            Drawn(
                submission.job.id.replace(".", "-"), submission.job.model, submission.at_s * faster, goal.target,
                round(goal.deadline.time_s * faster, 1),
            )
        )  # fmt: skip
    return found


# -- live -------------------------------------------------------------------------------------------------------------


class Submitter:
    """Submits queries to a controller, and waits until they have ended."""

    def __init__(self, controller: Controller, data: Path, texts: dict[int, str]) -> None:
        self._controller, self._data, self._texts = controller, data, texts
        while not self._call("GET", "/v1/nodes")["nodes"]:  # It listens before its agent says hello.
            time.sleep(0.1)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Over a connection of its own: between two arrivals an idle one may be closed."""
        with closing(self._controller.connect()) as link:
            return self._controller.call(link, method, path, body)

    def submit(self, job_id: str, query: str, until: str = "", threads: str = f"1-{CORES}") -> None:
        """Submit a query."""
        sql = self._texts[int(query.removeprefix("q"))].strip().rstrip(";")
        said: dict[str, object] = {
            "name": job_id,
            "query": sql,
            "data": str(self._data),
            "model": query,
            "threads": threads,
        }
        if until:
            said["until"] = until
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
            time.sleep(0.2)


def alone(home: Path, data: Path, texts: dict[int, str], queries: Iterable[str]) -> dict[str, Alone]:
    """Each query once, one after the other, on one thread."""
    controller = Controller(home, "--policy", "fifo", "--gpus", "0", "--cores", "1")
    try:
        submitter = Submitter(controller, data, texts)
        for query in queries:
            submitter.submit(f"alone-{query}", query, threads="1")
            submitter.wait(f"'{query}' alone")
            print(f"benchmarks: {query} ran alone", file=sys.stderr, flush=True)
    finally:
        controller.down()
    begun: dict[str, float] = {}
    said: dict[str, list[tuple[float, dict[str, float]]]] = {}
    with closing(open_to_read(str(home / "journal.db"))) as journal:
        for cycle in journal:
            for event in cycle.events:
                match event:
                    case JobSubmitted(job=job):
                        begun.setdefault(job.id, event.at_s)
                    case ProgressReported(job=job_id, metrics=metrics) | EpochEnded(job=job_id, metrics=metrics):
                        if "fraction" in metrics:
                            said.setdefault(job_id, []).append((event.at_s, metrics))
    return {job_id.removeprefix("alone-"): _alone(begun[job_id], reports) for job_id, reports in said.items()}


def _alone(submitted_s: float, reports: list[tuple[float, dict[str, float]]]) -> Alone:
    """Batches take `redo_s`; what is missing until the first report is its start."""
    first_s, first = reports[0]
    took_s = first.get("redo_s", 0.0)
    run_s = max(0.01, reports[-1][0] - first_s + took_s)
    return Alone(max(0.1, first_s - submitted_s - took_s), run_s)


def history(home: Path, file: Path) -> list[PastJob]:
    """What the journal of the lone queries has learned, into a file; the same for simulated jobs, without traits."""
    said = subprocess.run([*HOCKET, "journal", "history", "--home", str(home)], check=True, capture_output=True).stdout
    file.write_bytes(said)
    return [replace(job, traits={}) for job in read_past_jobs(file)]


def live(
    home: Path, bound: BoundPolicy, queries: Sequence[Drawn], past: Path, data: Path, texts: dict[int, str]
) -> tuple[Ran, list[float]]:
    """One policy with real queries; and when they really arrived."""
    policy, settings = bound.policy.name, bound.settings
    options = [word for name, value in settings.items() for word in ("--param", f"{name}={json.dumps(value)}")]
    if bound.policy.reads_past_jobs:
        options += ["--history", str(past)]
    controller = Controller(home, "--policy", policy, "--gpus", "0", "--cores", str(CORES), *options)
    try:
        submitter, began_s = Submitter(controller, data, texts), time.monotonic()
        for n, query in enumerate(queries):
            time.sleep(max(0.0, began_s + query.at_s - time.monotonic()))
            submitter.submit(query.id, query.query, f"acc >= {100 * query.accuracy:g}% within {query.deadline_s:g}s")
            print(f"benchmarks: {policy}: {n + 1} of {len(queries)} arrived", file=sys.stderr, flush=True)
        submitter.wait(policy)
    finally:
        controller.down()
    with closing(open_to_read(str(home / "journal.db"))) as journal:
        found = counted(journal.header, list(journal))
        begun = [e.at_s for cycle in journal for e in cycle.events if isinstance(e, JobSubmitted)]
    return found, [at_s - begun[0] for at_s in begun]


def counted(header: Any, cycles: list[Any]) -> Ran:
    """What a journal says, live or simulated."""
    records = account(header, cycles).jobs
    attained, jobs = dict.fromkeys(CLASSES, 0), dict.fromkeys(CLASSES, 0)
    for record in records:
        kind = record.job.id.partition("-")[0]
        jobs[kind] += 1
        attained[kind] += record.verdict == "attained"
    pauses: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, JobPaused):
                pauses[str(event.tier)] += 1
            elif isinstance(event, JobStarted) and not event.in_place:
                starts[event.job] += 1
    times = [record.jct_s for record in records if record.jct_s is not None]
    again = sum(n - 1 for n in starts.values())
    return Ran(attained, jobs, dict(pauses), again, round(sum(times) / max(1, len(times)), 2))


# -- simulated --------------------------------------------------------------------------------------------------------


def simulated(
    bound: BoundPolicy, queries: Sequence[Drawn], arrived_s: Sequence[float], slower: float, start_s: float,
    past: Sequence[PastJob],
) -> Ran:  # fmt: skip
    """The same arrivals in the simulator."""
    template = rotary_workload("aqp").submissions[0].job
    submissions = []
    for query, at_s in zip(queries, arrived_s, strict=True):
        goal = Goal("acc", ">=", query.accuracy, Duration(query.deadline_s))
        job = replace(template, id=query.id, sizes=tuple(range(1, CORES + 1)), criterion=goal, model=query.query)
        truth = query_truth(query.query, 0, slower / stretch(1.0), "intervals")
        truth = replace(truth, costs=Costs(start_s=start_s, checkpoint_s=0.1))
        submissions.append(Submission(round(at_s, 3), job, truth))
    changes = (PastJobsGiven(0.0, tuple(past)),) if bound.policy.reads_past_jobs else ()
    workload = Workload("rotary-live", tuple(submissions), (Node("here", cores=float(CORES)),), changes=changes)
    ran = simulate(workload, workload.nodes, bound)
    return counted(ran.journal.header, list(ran.journal))


# -- all of it --------------------------------------------------------------------------------------------------------


def measured(options: argparse.Namespace, folder: Path) -> Measured:
    """All policies."""
    texts, queries = tpch_queries(), drawn(options.seed, options.queries, options.gap)
    native, data = folder / f"tpch-{options.scale:g}.duckdb", folder / f"tpch-{options.scale:g}-prepared.duckdb"
    generated(options.scale, native, data)
    here = machine()
    ran_alone = alone(_home(folder, "alone"), data, texts, sorted({q.query for q in queries}))
    slower = median(ran.run_s / measured_queries()[q].orders[0][-1].cpu_s for q, ran in ran_alone.items())
    start_s = median(ran.start_s for ran in ran_alone.values())
    file = folder / "past.jsonl"
    past = history(folder / "alone", file)
    compared = []
    for number, named in enumerate(options.policies):
        bound = bound_policy(named)
        home = _home(folder, f"{number}-{bound.policy.name}")
        found, arrived_s = live(home, bound, queries, file, data, texts)
        compared.append(Compared(named, found, simulated(bound, queries, arrived_s, slower, start_s, past)))
    command = f"python -m benchmarks.rotary_live {' '.join(options.policies)}"
    return Measured(command, here, options.scale, options.gap, round(start_s, 2), round(slower, 2), compared)


def _home(folder: Path, name: str) -> Path:
    home = folder / name
    home.mkdir(exist_ok=True)
    return home


def text(found: Measured) -> str:
    """One page."""
    here = found.machine
    lines = [
        f"{found.command}; {here.cores} cores, load {here.load} when it began, {here.date}",
        f"TPC-H at scale factor {found.scale:g}, a query every {found.gap_s:g} s; "
        f"a process starts in {found.start_s:g} s, and batches take {found.slower:g} times their CPU time",
        "",
    ]
    rows = []
    for each in found.compared:
        for how, ran in (("live", each.live), ("simulated", each.simulated)):
            by_class = [f"{ran.attained[name]} of {ran.jobs[name]}" for name in CLASSES]
            kept = ", ".join(f"{count} {where}" for where, count in sorted(ran.pauses.items())) or "none"
            total = f"{sum(ran.attained.values())} of {sum(ran.jobs.values())}"
            rows.append((each.policy, how, total, *by_class, kept, str(ran.starts), f"{ran.mean_s:.1f}"))
    titles = ("policy", "", "attained", *CLASSES, "pauses", "restarts", "mean s")
    return "\n".join([*lines, *table(titles, rows)])


def main(arguments: list[str] | None = None) -> int:
    """Prepare, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", type=int, default=12, help="of the 30 of Table 3.1, from 1 to 30")
    parser.add_argument("--gap", type=float, default=8.0, help="mean seconds between arrivals; deadlines go with it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if not 1 <= options.queries <= 30 or options.gap <= 0 or options.scale <= 0:
        parser.error(
            f"--queries from 1 to 30, --gap and --scale above 0, not {options.queries}, {options.gap}, {options.scale}"
        )
    for named in options.policies:
        try:
            bound_policy(named)
        except ValueError as error:
            parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="hocket-rotary-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        found = measured(options, folder)
    print(json.dumps(msgspec.to_builtins(found)) if options.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
