"""`python -m benchmarks.paramserver.groups.replay DIR [--json]`: recorded runs of real jobs, played by the simulator.

Each group is played with the phases that its jobs measured while it lasted: round times and utilisation beside those of
the live run. Then each whole run is simulated under the same policy, with jobs whose phases and start-up are those
measured: JCT and makespan beside the live ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.machine import table
from benchmarks.paramserver.groups.job_mix import HOSTS, JOBS, MEM_MIB, SIZES
from benchmarks.paramserver.groups.policy_run import POLICIES, PolicyRun
from benchmarks.paramserver.groups.recorded_groups import RecordedGroup, recorded_groups
from benchmarks.paramserver.groups.round_prediction import profile_meanwhile
from hocket.control.journal.open import open_to_read
from hocket.control.ports import Cycle
from hocket.executors.simulated import simulate
from hocket.executors.simulated.beliefs import parse_beliefs
from hocket.executors.simulated.phases import Played, foresee
from hocket.model.event import JobSubmitted, PhasesObserved
from hocket.model.job import Job, Kind
from hocket.model.phases import SHORT_COMM
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.policies import find
from hocket.reports.account import account
from hocket.workloads.truth import Submission, Truth, Workload

_REFERENCE = SIZES[0]  # hosts to which the simulated jobs' phases refer
_TRUTH = Truth(1.0, _REFERENCE, comm_s=1.0, own_part=1.0)  # of what all of them do: models are divided among hosts


class PlayedGroup(Struct, frozen=True):
    """One group, live and simulated."""

    run: str
    jobs: list[str]
    hosts: int
    lasted_s: float
    live_round_s: float
    played_round_s: float
    live_cpu: float
    played_cpu: float
    live_net: float
    played_net: float
    iterations_off: list[float]  # by job: simulated time of an iteration over the live one, less 1


class PlayedRun(Struct, frozen=True):
    """One run, live and simulated."""

    run: str
    live_jct_s: float
    simulated_jct_s: float
    live_makespan_s: float
    simulated_makespan_s: float


class Replayed(Struct, frozen=True):
    """All of a folder."""

    groups: list[PlayedGroup]
    runs: list[PlayedRun]


def replayed(folder: Path) -> Replayed:
    """Play all runs that are recorded there."""
    groups, runs = [], []
    paths = sorted(folder.glob("*.json"))
    recorded = {path.stem: msgspec.json.decode(path.read_bytes(), type=PolicyRun) for path in paths}
    cycles = {name: list(open_to_read(folder / f"{name}.journal")) for name in recorded}
    # Jobs that take no turns measure no phases: theirs are those of the other runs.
    everything = _phases([each for of in cycles.values() for each in of])
    for name, run in recorded.items():
        began_s = _began_s(cycles[name])
        groups += [_played(name, run, began_s, group) for group in recorded_groups(cycles[name])]
        runs.append(_simulated(name, run, {**everything, **_phases(cycles[name])}, cycles[name]))
    return Replayed(groups, runs)


def _began_s(cycles: Sequence[Cycle]) -> float:
    return min(event.at_s for cycle in cycles for event in cycle.events if isinstance(event, JobSubmitted))


# -- groups -------------------------------------------------------------------------------------------------


def _played(name: str, run: PolicyRun, began_s: float, group: RecordedGroup) -> PlayedGroup:
    played = play_group(group)
    # Use is sampled over all hosts: what this group's own had cannot be told where there are other groups.
    whole = len(group.nodes) == HOSTS
    seen = [s for s in run.use if group.since_s <= began_s + s.at_s <= group.until_s] if whole else []
    cpu, net = (sum(getattr(s, of) for s in seen) / len(seen) if seen else -1.0 for of in ("cpu", "net"))
    off = [told / tenant.iteration_s - 1 for tenant, told in zip(group.tenants, played.iteration_s, strict=True)]
    return PlayedGroup(
        name, [t.job for t in group.tenants], len(group.nodes), group.until_s - group.since_s, group.round_s,
        played.round_s, cpu, played.cpu, net, played.net, off,
    )  # fmt: skip


def play_group(group: RecordedGroup) -> Played:
    """As the simulator does, on one host that stands for all: a group's jobs have the same ones."""
    return foresee([profile_meanwhile(tenant) for tenant in group.tenants], len(group.nodes), SHORT_COMM)


# -- runs ---------------------------------------------------------------------------------------------------


def _phases(cycles: Sequence[Cycle]) -> dict[str, tuple[float, float]]:
    """By job: COMP on one host, and COMM on as many as it has at least, with what hosts need to meet: whole runs are
    simulated without a third."""
    found: dict[str, list[PhasesObserved]] = {}
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, PhasesObserved):
                found.setdefault(event.job, []).append(event)
    means = {}
    for job, seen in found.items():
        count = sum(s.iterations for s in seen)
        comp_s = sum(s.comp_s * s.slowest * s.machines * s.iterations for s in seen) / count
        comms = (s.comm_s * s.slowest * _TRUTH.comm_on(_REFERENCE) / _TRUTH.comm_on(s.machines) for s in seen)
        means[job] = comp_s, sum((c + s.meeting_s) * s.iterations for c, s in zip(comms, seen, strict=True)) / count
    return means


def _simulated(name: str, run: PolicyRun, phases: dict[str, tuple[float, float]], cycles: Sequence[Cycle]) -> PlayedRun:
    order = [e.job.id for cycle in cycles for e in cycle.events if isinstance(e, JobSubmitted)]
    iterations = {job.name: job.iterations(run.share) for job in JOBS}
    times = {job.name: job for job in run.jobs}
    submissions = []
    for job in order:
        comp_machine_s, comm_s = phases[job]
        comp_s = comp_machine_s / _REFERENCE
        start_s = max(0.0, times[job].first_iteration_s - times[job].started_s - comp_s - comm_s)
        truth = Truth(
            iterations[job] * (comp_s + comm_s), _REFERENCE, comp_s=comp_s, comm_s=comm_s, epochs=iterations[job],
            costs=Costs(start_s=start_s), short_comm=SHORT_COMM, own_part=_TRUTH.own_part,
        )  # fmt: skip
        demand = Demand(cores=run.shape.cores, mem_mib=350.0, net_mbps=run.mbit)
        submissions.append(Submission(0.0, Job(job, "", Kind.PARAMETER_SERVER, demand=demand, sizes=SIZES), truth))
    nodes = tuple(Node(f"n{i}", cores=run.shape.cores, mem_mib=MEM_MIB, net_mbps=run.mbit) for i in range(HOSTS))
    options = POLICIES[run.policy]
    settings = dict(word.split("=") for flag, word in pairwise(options) if flag == "--param")
    ran = simulate(
        Workload("recorded", tuple(submissions), nodes=nodes), nodes, find(run.policy).bound(settings),
        beliefs=parse_beliefs("learned"),
    )  # fmt: skip
    ended = account(ran.journal.header, ran.journal)
    jcts_s = [job.jct_s for job in ended.jobs if job.jct_s is not None]
    return PlayedRun(name, run.mean_jct_s, sum(jcts_s) / len(jcts_s), run.makespan_s, ended.makespan_s)


# -- what is said -------------------------------------------------------------------------------------------


def text(found: Replayed) -> list[str]:
    """Both tables."""
    groups = [
        (
            f"{g.run}: {', '.join(g.jobs)}", str(g.hosts), f"{g.lasted_s:.0f}", f"{g.live_round_s:.2f}",
            f"{g.played_round_s:.2f}", f"{g.played_round_s / g.live_round_s - 1:+.0%}", _both(g.live_cpu, g.played_cpu),
            _both(g.live_net, g.played_net),
        )
        for g in found.groups
    ]  # fmt: skip
    rounds = [abs(g.played_round_s / g.live_round_s - 1) for g in found.groups]
    runs = [
        (
            r.run, f"{r.live_jct_s:.0f}", f"{r.simulated_jct_s:.0f}", f"{r.simulated_jct_s / r.live_jct_s - 1:+.0%}",
            f"{r.live_makespan_s:.0f}", f"{r.simulated_makespan_s:.0f}",
            f"{r.simulated_makespan_s / r.live_makespan_s - 1:+.0%}",
        )
        for r in found.runs
    ]  # fmt: skip
    return [
        "GROUPS, live and played with the phases that were measured",
        *table(("group", "hosts", "for s", "live round s", "played s", "off", "CPU", "network"), groups),
        f"  rounds are off by {sum(rounds) / max(1, len(rounds)):.1%} on average, {len(rounds)} groups",
        "",
        "RUNS, live and simulated with the phases and start-up that were measured",
        *table(("run", "live JCT s", "simulated s", "off", "live makespan s", "simulated s", "off"), runs),
    ]


def _both(live: float, played: float) -> str:
    return f"{played:.0%}" if live < 0 else f"{live:.0%} → {played:.0%}"


def main(arguments: list[str] | None = None) -> int:
    """Print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paramserver.groups.replay", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="what `python -m benchmarks.paramserver.groups` wrote")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if not any(chosen.folder.glob("*.json")):
        parser.error(f"'{chosen.folder}' has no recorded run")
    found = replayed(chosen.folder)
    plain: Any = msgspec.to_builtins(found)
    print(json.dumps(plain) if chosen.json else "\n".join(text(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
