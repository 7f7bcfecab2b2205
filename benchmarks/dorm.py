"""How long Dorm's decisions take, and how far they are from the best proven bound: `python -m benchmarks.dorm`.

Decisions are taken by the policy itself, in a controller whose actions are done at once: from the snapshot to the plan.
Times are of the processor, so that other work on the machine counts less. Gaps are those that the plans' reasons say.
Every plan is also checked against P2 without the solver; one that broke it would end the benchmark. The solver's
libraries are loaded beforehand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from random import Random
from time import process_time

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.model.event import Event, JobEnded, JobSubmitted
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies import find
from hocket.policies.dorm.optimise import optimise
from hocket.policies.dorm.policy import LEFT_OUT
from hocket.policies.dorm.problem import Application, Places, Problem, violations
from hocket.policies.dorm.snapshot_to_problem import problem_of
from hocket.testing.harness import done
from hocket.workloads.dorm import TYPES, dorm_cluster, dorm_workload

_GAP = re.compile(r"gap ([0-9.]+)%")
THETA = 0.1  # both


class Row(Struct, frozen=True):
    """One size."""

    case: str
    goal: str
    decisions: int  # in which P2 was solved
    infeasible: int
    p50_ms: float
    p99_ms: float
    most_ms: float
    gap_mean: float  # of the decisions that changed something
    gap_p99: float
    gap_most: float


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    rows: list[Row]


class Watched:
    """The policy, with a look at every decision that was a decision."""

    def __init__(self) -> None:
        self.bound = find("dorm").bound({"theta1": THETA, "theta2": THETA})
        self.took_ms: list[float] = []
        self.gaps: list[float] = []
        self.infeasible = 0
        self.looks = True

    def __call__(self, snapshot: Snapshot) -> Plan:
        """Decide, measure and check."""
        if not self.looks:
            return self.bound.decide(snapshot)
        began = process_time()
        plan = self.bound.decide(snapshot)
        took_ms = (process_time() - began) * 1e3
        if plan.memo == snapshot.memo:
            return plan  # Nothing had changed.
        self.took_ms.append(took_ms)
        if plan.reasons.get("*", LEFT_OUT) != LEFT_OUT:
            self.infeasible += 1
            return plan
        _recheck(snapshot, plan)
        said = [float(m[1]) / 100 for r in plan.reasons.values() if (m := _GAP.search(r))]
        self.gaps += said[:1]
        return plan

    def row(self, case: str, goal: str) -> Row:
        """What was seen."""
        took, gaps = sorted(self.took_ms), sorted(self.gaps) or [inf]
        return Row(
            case, goal, len(took), self.infeasible, _quantile(took, 0.5), _quantile(took, 0.99), took[-1],
            sum(gaps) / len(gaps), _quantile(gaps, 0.99), gaps[-1],
        )  # fmt: skip


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


def _recheck(snapshot: Snapshot, plan: Plan) -> None:
    """P2's constraints, of the plan as it stands and without the solver."""
    posed = problem_of(snapshot, THETA, THETA)
    number = {snapshot.capacity.layout.nodes[i].id: server for server, i in enumerate(posed.nodes)}
    put = {p.id: p for p in plan.put}
    allocation: list[Places] = []
    for view, application in zip(posed.views, posed.problem.applications, strict=True):
        partition = put.get(view.id)
        if partition is None:
            allocation.append(application.before or ())
        else:
            replicas = partition.tenants[0].replicas
            allocation.append(
                tuple(sorted((number[s.node], n) for s, n in zip(partition.slices, replicas, strict=True)))
            )
    if found := list(violations(posed.problem, tuple(allocation))):
        raise AssertionError(f"the plan breaks P2: {found}")


def whole_runs(runs: int) -> Row:
    """The paper's workload, from the first submission to the last end."""
    watched = Watched()
    for seed in range(runs):
        workload = dorm_workload(seed)
        simulate(workload, workload.nodes, msgspec.structs.replace(watched.bound, decide=watched), seed=seed)
    return watched.row(f"50 x 20, {runs} whole runs of the workload", "p99 150 ms, 1 %")


def at_size(jobs: int, servers: int, steps: int) -> Row:
    """So many applications of Table II, of which a fiftieth at a time comes or goes."""
    watched = Watched()
    _play(watched, dorm_cluster(servers), _of_table_two, jobs, jobs // 50, steps, fill=jobs // 50)
    return watched.row(f"{jobs} x {servers}, {max(jobs // 50, 1)} come or go at a time", _GOALS[servers])


_GOALS = {200: "0.5 s, 1 %", 1000: "1 s, 1 %", 20: "150 ms, 1 %"}


def all_different(steps: int) -> Row:
    """50 applications, no two of which demand the same, on servers of five kinds."""
    watched = Watched()
    rng = Random("benchmarks/mixed")
    nodes = [
        Node(f"n{j:03d}", j % 5 // 3, cores=float(8 + 8 * (j % 4)), mem_mib=1024.0 * rng.choice((32, 64, 128)))
        for j in range(20)
    ]
    _play(watched, nodes, _unlike_any, 50, 1, steps, fill=50)
    return watched.row("50 x 20, every demand different", "3 s, gap said")


def _of_table_two(name: str, rng: Random) -> Job:
    kind = rng.choices(TYPES, [t.number for t in TYPES])[0]
    return Job(name, demand=kind.demand, sizes=kind.sizes, weight=float(kind.weight))


def _unlike_any(name: str, rng: Random) -> Job:
    demand = Demand(int(rng.random() < 0.1), round(rng.uniform(0.5, 4.0), 2), round(rng.uniform(512, 12_288)))
    sizes = tuple(range(1, rng.choice((4, 8, 16, 32)) + 1))
    return Job(name, demand=demand, sizes=sizes, weight=float(rng.choice((1, 1, 2, 4))))


def _play(
    watched: Watched,
    nodes: Sequence[Node],
    draw: Callable[[str, Random], Job],
    jobs: int,
    at_a_time: int,
    steps: int,
    fill: int,
) -> None:
    """Fill the cluster, then let jobs come and go; what is seen before it is full does not count."""
    rng = Random("benchmarks/dorm")
    controller = Controller(empty_snapshot(nodes), watched, watched.bound.order, MemoryJournal(Header("dorm")))
    names = (f"j{n}" for n in range(1_000_000))

    def cycle(at_s: float, events: Sequence[Event]) -> None:
        actions = controller.cycle(at_s, events)
        while actions:
            actions = controller.cycle(at_s, [done(a, at_s) for a in actions])

    def arrivals(at_s: float, count: int = at_a_time) -> Iterator[Event]:
        for _ in range(count):
            yield JobSubmitted(at_s, draw(next(names), rng))

    now_s = 0.0
    watched.looks = False
    while len(controller.snapshot.jobs) < jobs:
        now_s += 60.0
        cycle(now_s, list(arrivals(now_s, fill)))
    watched.looks = True
    for _ in range(steps):
        now_s += 60.0
        running = sorted(v.id for v in controller.snapshot.jobs.values() if v.size)
        if len(controller.snapshot.jobs) < jobs:
            cycle(now_s, list(arrivals(now_s)))
        else:
            cycle(now_s, [JobEnded(now_s, job) for job in rng.sample(running, at_a_time)])


def main(arguments: list[str]) -> None:
    """Measure, and print one table or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dorm", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few decisions: half a minute instead of four")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    few = chosen.quick
    optimise(Problem(((1.0,),), (1.0,), (Application((1.0,), (1,)),)))
    rows = []
    for measure in (
        partial(whole_runs, 1 if few else 10),
        partial(at_size, 50, 20, 20 if few else 200),
        partial(at_size, 500, 200, 10 if few else 100),
        partial(at_size, 2000, 1000, 4 if few else 50),
        partial(all_different, 5 if few else 40),
    ):
        rows.append(measure())
        print(
            f"benchmarks: {rows[-1].case}: p99 {rows[-1].p99_ms:.0f} ms, gap p99 {rows[-1].gap_p99:.2%}",
            file=sys.stderr,
        )
    found = Measured(" ".join(["python -m benchmarks.dorm", *arguments]), machine(), rows)
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: Measured) -> str:
    """As a Markdown table."""
    here = found.machine
    lines = [
        f"`{found.command}`, {here.cores} cores, Python {here.python}, {here.date}; processor time of a decision",
        "",
        "| applications x servers | goal | decisions | infeasible | p50 | p99 | most | gap mean | gap p99 | gap most |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in found.rows:
        times = " | ".join(f"{ms:.0f} ms" for ms in (row.p50_ms, row.p99_ms, row.most_ms))
        gaps = " | ".join(f"{g:.2%}" if g < inf else "unknown" for g in (row.gap_mean, row.gap_p99, row.gap_most))
        lines.append(f"| {row.case} | {row.goal} | {row.decisions} | {row.infeasible} | {times} | {gaps} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
