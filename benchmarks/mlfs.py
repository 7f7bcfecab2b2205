"""How long one decision of MLF-H takes, by how many jobs and tasks there are: `python -m benchmarks.mlfs [--json]`.

Beside it the same with load control around it, and the baselines that place tasks too. The cluster is full and the jobs
are those of MLFS's workload. In each round one job ends and another comes. CPU time of the decision alone; the cycle
around it, which folds, checks and carries it out, stands beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from random import Random
from time import process_time

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, median
from hocket.cli.simulation.scenario import bound_policy
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.curve import Beliefs, Estimate
from hocket.model.event import Event, JobEnded, JobSubmitted
from hocket.model.plan import Plan
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.testing.harness import done
from hocket.workloads.mlfs import mlfs_workload, servers
from hocket.workloads.truth import Submission

# One decision at 1,860 jobs takes the authors 40 to 54 ms (MLFS, Figure 4).
PEER_MS = 40.0
ROUND_S = 60.0
# mlf_rl leaves a queue beyond its training to mlf_h; guard=false measures the network itself.
POLICIES = ("mlf_h", "mlf_rl", "mlf_rl:guard=false", "rl", "mlfs_c", "graphene", "gandiva")


class Case(Struct, frozen=True):
    """A cluster and how many jobs it has to deal with."""

    about: str
    nodes: tuple[Node, ...]
    jobs: int
    goal_ms: float  # of MLF-H


class Decided(Struct, frozen=True):
    """What was measured of one case."""

    case: str
    policy: str
    jobs: int  # live, those that run included
    tasks: int  # of all of them
    running: int  # jobs
    decisions: int
    mean_ms: float
    median_ms: float
    p99_ms: float
    cycle_ms: float  # mean
    goal_ms: float | None


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    peer_ms: float
    rows: list[Decided]


def cases(quick: bool) -> list[Case]:
    """The paper's largest real experiment; as many tasks on a cluster on which most of them run."""
    if quick:
        return [Case("80 GPUs, 60 jobs", servers((20, 4)), 60, 5.0)]
    return [
        Case("80 GPUs, 1,860 jobs", servers((20, 4)), 1860, 5.0),
        Case("2,474 GPUs, 20,000 tasks", servers((229, 8), (321, 2)), 1905, 50.0),
    ]


def measured(case: Case, policy: str, rounds: int) -> Decided:
    """Fill the cluster and the queue, and decide round after round."""
    bound = bound_policy(policy)
    took: list[float] = []

    def decide(snapshot: Snapshot) -> Plan:
        began = process_time()
        plan = bound.decide(snapshot)
        took.append(process_time() - began)
        return plan

    nodes, rng, coming = case.nodes, Random("benchmarks"), _coming(case.jobs)
    journal = MemoryJournal(Header(bound.policy.name, nodes=nodes))
    controller = Controller(empty_snapshot(nodes), decide, bound.order, journal, **bound.needs)

    def cycle(at_s: float, *events: Event) -> None:
        actions = controller.cycle(at_s, events)
        while actions:
            actions = controller.cycle(at_s, [done(a, at_s) for a in actions])

    cycle(0.0, *(_submitted(s, 0.0) for s in islice(coming, case.jobs)))
    now_s, cycles_s = 0.0, 0.0
    for n in range(rounds + 5):
        now_s += ROUND_S
        running = [v.job.id for v in controller.snapshot.jobs.values() if v.size]
        if n == 5:  # The first rounds only fill the caches.
            took.clear()
            cycles_s = 0.0
        began = process_time()
        cycle(now_s, JobEnded(now_s, rng.choice(running)), _submitted(next(coming), now_s))
        cycles_s += process_time() - began
    views = controller.snapshot.jobs.values()
    took_ms = sorted(s * 1e3 for s in took)
    return Decided(
        case.about,
        policy,
        len(views),
        sum(len(v.job.tasks.tasks) for v in views if v.job.tasks is not None),
        sum(1 for v in views if v.size),
        len(took),
        sum(took_ms) / len(took_ms),
        median(took_ms),
        took_ms[int(0.99 * (len(took_ms) - 1))],
        cycles_s / rounds * 1e3,
        case.goal_ms if bound.policy.name in ("mlf_h", "mlf_rl", "rl") else None,
    )


def _coming(jobs: int) -> Iterator[Submission]:
    return iter(mlfs_workload(jobs + 1000, 604800.0, 3600.0, 1.0).submissions)


def _submitted(submission: Submission, at_s: float) -> JobSubmitted:
    truth = submission.truth
    return JobSubmitted(at_s, submission.job, Beliefs(Estimate(truth.run_s), truth.reference_size), truth.costs)


def main(arguments: list[str]) -> None:
    """Measure, and print a table or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mlfs", description="Decisions of MLF-H.")
    parser.add_argument("--quick", action="store_true", help="a small case: seconds instead of minutes")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="POLICY", help="NAME or NAME:knob=value,…")
    parser.add_argument("--paper-only", action="store_true", help="only the paper's case: 1,860 jobs on 80 GPUs")
    parser.add_argument("--rounds", type=int, default=200, help="decisions of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    rounds = 10 if chosen.quick else chosen.rounds
    among = cases(chosen.quick)[: 1 if chosen.paper_only else None]
    rows = [measured(case, policy, rounds) for case in among for policy in chosen.policies]
    found = Measured(" ".join(["python -m benchmarks.mlfs", *arguments]), machine(), PEER_MS, rows)
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def text(found: Measured) -> str:
    """The table, with the command that made it."""
    here = found.machine
    lines = [
        f"`{found.command}`; CPU time in ms; {here.cores} cores, load {here.load:g}, Python {here.python}, {here.date}",
        "",
        "| case | policy | jobs | tasks | running | decisions | mean | median | p99 | cycle | goal | paper |",
        "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in found.rows:
        goal, paper = ("–", "–") if row.goal_ms is None else (f"{row.goal_ms:g}", f"{found.peer_ms:g}")
        lines.append(
            f"| {row.case} | {row.policy} | {row.jobs:,} | {row.tasks:,} | {row.running} | {row.decisions} | "
            f"{row.mean_ms:.2f} | {row.median_ms:.2f} | {row.p99_ms:.2f} | {row.cycle_ms:.2f} | {goal} | {paper} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
