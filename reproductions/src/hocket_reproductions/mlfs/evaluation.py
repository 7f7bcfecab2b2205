"""MLFS's evaluation: partitioned models on 80 GPUs, and the Philly table on 2,474, under eleven schedulers.

The jobs are those of `workloads/mlfs.py`, where all that the paper leaves open is fixed. Schedulers that place tasks
run them as task graphs, several tasks on a GPU; the others run the same jobs without tasks. So that
the effect of sharing GPUs can be separated from that of the order, those that place tasks also run on whole jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.ports import Header
from hocket.executors.simulated import BeliefMode, simulate
from hocket.policies import find as find_policy
from hocket.policies.mlfs.weights_file import SHIPPED
from hocket.reports.mlfs_run import MlfsRun, RunStatistics
from hocket.reports.simulation import process_cost, rare_garbage_collection
from hocket.reproductions import Assumption, Case, Reproduction, Request
from hocket.reproductions.results_file import digest_of_file
from hocket.workloads.mlfs import COSTS, DEADLINE_H, EPOCHS, JITTER_S, USE, as_whole, mlfs_philly, mlfs_workload
from hocket.workloads.philly import read_philly
from hocket.workloads.selection import Selection
from hocket.workloads.truth import Workload
from hocket_reproductions.mlfs.figures import draw_figures
from hocket_reproductions.mlfs.findings import compare_with_paper

JOBS = (155, 310, 620, 1240, 1860)  # within a week: 620x, for x = 1/4 to 3
WEEK_S, MEDIAN_S, SIGMA = 604800.0, 3600.0, 1.0
BELIEFS = BeliefMode("noisy", 0.11)  # "89 % prediction accuracy"
TIMES_ALL, TIMES_SOME = (0.5, 1.0), (2.0, 4.0)  # each job of the trace so many times


class Approach(Struct, frozen=True):
    """A policy, how it is set, and whether it sees tasks or whole jobs."""

    policy: str
    params: dict[str, Any] = {}
    whole: bool = False


SCHEDULERS = {
    "mlfs_rl": Approach("mlfs_c", {"inner": "mlf_rl"}),  # MLFS as the paper has it: load control around MLF-RL
    "mlfs_c": Approach("mlfs_c"),  # and around MLF-H
    "mlf_rl": Approach("mlf_rl"),
    "mlf_h": Approach("mlf_h"),
    "rl": Approach("rl"),
    "graphene": Approach("graphene"),
    "gandiva": Approach("gandiva"),
    "tiresias": Approach("tiresias", whole=True),
    "hypersched": Approach("hypersched", whole=True),
    "borg_fair": Approach("borg_fair", whole=True),
    "slaq": Approach("slaq", whole=True),
    "las": Approach("las", whole=True),
    "optimus": Approach("optimus", whole=True),
}
WITHOUT = {  # MLF-H less one of its parts
    "without urgency": Approach("mlf_h", {"urgency": False}),
    "without deadlines": Approach("mlf_h", {"gamma_d": 0.0}),
    "without traffic": Approach("mlf_h", {"traffic": False}),
    "without migration": Approach("mlf_h", {"relieve": False}),
}
WHOLE = {f"{name}, whole jobs": Approach(name, whole=True) for name in ("mlf_h", "graphene", "gandiva")}
APPROACHES = SCHEDULERS | WITHOUT | WHOLE
LONG = ("mlf_h", "las")  # run for the largest multiples of the trace, too


def cases(request: Request) -> list[Case]:
    """On 80 GPUs every approach with every number of jobs, seed by seed; on the trace the schedulers, once."""
    found = [Case(label, seed, {"jobs": jobs}) for seed in request.seeds for jobs in JOBS for label in APPROACHES]
    if request.trace is not None:
        read_philly(request.trace)  # Report errors in the input before anything runs.
        found += [Case(label, 0, {"trace": request.trace, "k": k}) for k in TIMES_ALL for label in SCHEDULERS]
        found += [Case(label, 0, {"trace": request.trace, "k": k}) for k in TIMES_SOME for label in LONG]
    rests_on = {label: _in_full(approach) for label, approach in APPROACHES.items()}
    return [replace(case, rests_on=rests_on[case.label]) for case in found]


def _in_full(approach: Approach) -> dict[str, Any]:
    """An approach with all knobs of its policy, also those that it leaves as they are, and its weights."""
    params = find_policy(approach.policy).bound(approach.params).settings
    found = {"policy": approach.policy, "params": params, "whole": approach.whole}
    shipped = SHIPPED.get(approach.params.get("inner", approach.policy))
    return found if shipped is None else found | {"weights_sha256": digest_of_file(shipped)}


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> MlfsRun:
    """One workload under one approach."""
    approach = APPROACHES[case.label]
    workload = _workload(case)
    began(len(workload.submissions))
    graphs = {s.job.id: s.job.tasks for s in workload.submissions if s.job.tasks is not None}
    uses = {s.job.id: s.truth.gpu_use for s in workload.submissions}
    if approach.whole:
        workload = replace(workload, submissions=tuple(as_whole(s) for s in workload.submissions))
    policy = find_policy(approach.policy).bound(approach.params)
    header = Header(policy.policy.name, policy.settings, workload.nodes, case.seed, workload.name)
    statistics = RunStatistics(header, graphs, uses, progressed)
    start_s = time.process_time()
    with rare_garbage_collection():
        ran = simulate(workload, workload.nodes, policy, seed=case.seed, beliefs=BELIEFS, journal=statistics)
    took_s = time.process_time() - start_s
    progressed(len(workload.submissions))
    return statistics.played(ran.decision_s, round(took_s, 3), round(process_cost().peak_rss_mib, 1))


def _workload(case: Case) -> Workload:
    if "trace" in case.settings:
        return mlfs_philly(case.settings["trace"], Selection(owner_option="vc"), case.settings["k"], seed=case.seed)
    return mlfs_workload(case.settings["jobs"], WEEK_S, MEDIAN_S, SIGMA, seed=case.seed)


def assumptions(request: Request) -> list[Assumption]:
    """Everything that the paper leaves open, as it was fixed before the first run."""
    costs = COSTS
    found = [
        Assumption(
            "arrivals and run times on 80 GPUs",
            f"{JOBS[0]} to {JOBS[-1]:,} jobs within a week, exponential gaps; lognormal, median {MEDIAN_S / 3600:g} h, "
            f"sigma {SIGMA:g}",
            "a week of the trace, which the paper does not name; the run times are ours",
        ),
        Assumption(
            "models",
            "one of five by lot, cut into as many parts as GPUs were asked for, and so one replica of each; a part "
            "computes only in its turn and asks for its part of a GPU's time, at least a quarter of it",
            "section 4.1 for models, parts and volumes; it speaks of data parallelism too, for which parts on all GPUs "
            "leave no room; what a task asks for is ours",
        ),
        Assumption(
            "what tasks take", f"{USE[0]:g} to {USE[1]:g} times what they ask for, by job", "ours: it overloads servers"
        ),
        Assumption(
            "tasks or whole jobs",
            "mlf_h and mlf_rl, also with load control, rl, graphene and gandiva place tasks, several on a GPU; the "
            "others give each job its GPUs for itself, with no time lost to communication",
            "so do the schedulers' own papers; the last point is to the others' advantage",
        ),
        Assumption(
            "deadlines", f"max(1.1 run time, {DEADLINE_H[0]:g} to {DEADLINE_H[1]:g} h), from submission", "section 4.1"
        ),
        Assumption(
            "accuracy",
            f"{EPOCHS} epochs along curves of three families with noise; asked for: 95 % of what a job reaches itself",
            "ours: the table that we have records no accuracies",
        ),
        Assumption("load control", "all jobs choose OptStop and may be stopped at what they ask for", "section 4.1"),
        Assumption("beliefs", f"run times known with an error of {BELIEFS.error:.0%}", "section 3.1: 89 % right"),
        Assumption(
            "switching",
            f"prepare {costs.prepare_s:g} s, start {costs.start_s:g} s, checkpoint {costs.checkpoint_s:g} s, "
            f"stop {costs.stop_s:g} s",
            "ours",
        ),
        Assumption(
            "MLFS",
            "mlfs_rl is load control around mlf_rl with the shipped weights, mlfs_c around mlf_h; where jobs are "
            "unlike those that its network was trained on, mlf_rl leaves the decision to mlf_h",
            "section 3.4; the paper trains on half of the trace for 26 hours",
        ),
        Assumption(
            "RL",
            "rl with the shipped weights: the network of mlf_rl without ML features, deadlines and traffic, rewarded "
            "for completion times alone; no task leaves a server",
            "sections 2 and 4.1, which say no more than that it minimises completion times without ML features",
        ),
    ]  # fmt: skip
    if request.trace is not None:
        times = ", ".join(f"×{k:g}" for k in (*TIMES_ALL, *TIMES_SOME))
        found.append(
            Assumption(
                "the trace",
                f"{Path(request.trace).name}, on 229 servers of 8 GPUs and 321 of 2; {times}, copies up to "
                f"{ceil(JITTER_S / 3600)} h later; models by lot; one seed",
                "section 4.1; the trace names no models, and its arrivals are as recorded, the paper's were compressed",
            )
        )
    return found


REPRODUCTION = Reproduction(
    "mlfs",
    "Wang et al., Job Scheduling for Large-Scale Machine Learning Clusters, CoNEXT'20",
    "155 to 1,860 partitioned models on 80 GPUs, eleven schedulers; by path the Philly table on 2,474",
    assumptions,
    cases,
    run_case,
    MlfsRun,
    compare_with_paper,
    draw_figures,
    takes={"trace": "the Philly table on 2,474 GPUs, ×0.5 to ×4"},
)
