"""One run in two dozen numbers: the object that `--json` prints.

Pure: computed from an account of a journal, and from the costs of the process that ran it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from hocket.model.plan import Verdict
from hocket.model.resources import RESOURCES, total
from hocket.reports.account import Account
from hocket.reports.fairness import fairness_loss, vector_of


class ProcessCost(Struct, frozen=True):
    """What a run cost the process that made it."""

    cpu_s: float = 0.0  # of the whole process
    peak_rss_mib: float = 0.0


class Summary(Struct, frozen=True):
    """The numbers of one run; null where no job has a value."""

    policy: str
    workload: str
    seed: int
    jobs: int  # submitted, refused ones included
    finished: int  # ended by themselves or by a verdict, without failed ones
    failed: int  # ended by a failure
    makespan_s: float  # from the first submission to the last end, or to the end of the run if jobs are unfinished
    jct_mean_s: float | None  # job completion time, from submission to end, over the finished jobs
    jct_p50_s: float | None  # quantiles are interpolated
    jct_p99_s: float | None
    wait_mean_s: float | None  # time without resources, before the first start and paused, over the finished jobs
    utilisation: dict[str, float]  # resource-seconds that tenants held / those of the cluster during the makespan
    fairness_loss: float  # mean over time of Dorm's Σ|s − ŝ| (see fairness.py)
    # If a run was cut off, open deadlines and goals are not counted; those of jobs that are stuck for good are not met.
    deadlines_met: float | None  # share of the jobs with a deadline that finished by it
    accuracies_met: float | None  # share of the jobs with a goal or convergence as criterion that reached it
    adjustments: int  # resizes, moves and pauses
    overhead_share: float  # time that tenants held resources without training / time that jobs held resources
    decisions: int
    decision_ms_mean: float | None
    decision_ms_p99: float | None
    cpu_s: float
    peak_rss_mib: float
    # Further numbers:
    refused: int = 0  # submissions that broke a rule
    unfinished: int = 0  # jobs + refused ones are all accounted for: jobs = finished + failed + refused + unfinished
    preemptions: int = 0  # pauses
    verdicts: dict[str, int] = {}  # of the jobs that ended
    refused_plans: int = 0  # plans that the check refused
    beliefs: str = ""
    params: dict[str, Any] = {}  # of the policy


def summarise(
    account: Account, decision_s: Sequence[float] = (), effort: ProcessCost = ProcessCost(), beliefs: str = ""
) -> Summary:
    """The numbers of one run."""
    header, counts = account.header, account.counts
    verdicts: dict[str, int] = {}
    jcts_s: list[float] = []
    waited_s = ran_s = stood_s = 0.0
    deadlines = deadlines_met = goals = goals_met = 0
    failed = str(Verdict.FAILED)
    for record in account.jobs:
        ran_s += record.ran_s
        stood_s += record.stood_s
        ended_s = record.ended_s
        if ended_s is not None:
            verdict = record.verdict
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
            if verdict != failed:
                jcts_s.append(ended_s - record.submitted_s)
                waited_s += record.waited_s
        if record.deadline_met is not None:
            deadlines += 1
            deadlines_met += record.deadline_met
        if record.goal_met is not None:
            goals += 1
            goals_met += record.goal_met
    jcts_s.sort()
    ended = sum(verdicts.values())
    slowest_s = quantile(sorted(decision_s), 0.99)
    return Summary(
        policy=header.policy,
        workload=header.workload,
        seed=header.seed,
        jobs=len(account.jobs) + len(account.refusals),
        finished=len(jcts_s),
        failed=ended - len(jcts_s),
        makespan_s=account.makespan_s,
        jct_mean_s=sum(jcts_s) / len(jcts_s) if jcts_s else None,
        jct_p50_s=quantile(jcts_s, 0.5),
        jct_p99_s=quantile(jcts_s, 0.99),
        wait_mean_s=waited_s / len(jcts_s) if jcts_s else None,
        utilisation=utilisation(account),
        fairness_loss=fairness_loss(account),
        deadlines_met=deadlines_met / deadlines if deadlines else None,
        accuracies_met=goals_met / goals if goals else None,
        adjustments=counts.resizes + counts.moves + counts.pauses,
        overhead_share=stood_s / ran_s if ran_s else 0.0,
        decisions=counts.plans + counts.refused_plans,
        decision_ms_mean=sum(decision_s) / len(decision_s) * 1e3 if decision_s else None,
        decision_ms_p99=None if slowest_s is None else slowest_s * 1e3,
        cpu_s=effort.cpu_s,
        peak_rss_mib=effort.peak_rss_mib,
        refused=len(account.refusals),
        unfinished=len(account.jobs) - ended,
        preemptions=counts.pauses,
        verdicts=verdicts,
        refused_plans=counts.refused_plans,
        beliefs=beliefs,
        params=header.params,
    )


def utilisation(account: Account) -> dict[str, float]:
    """Of every resource that the cluster has, the share that tenants held during the makespan."""
    there = [0.0] * len(RESOURCES)
    steps = [*account.capacity, (account.until_s, ())]
    for (since_s, nodes), (until_s, _) in pairwise(steps):
        during_s = min(until_s, account.until_s) - max(since_s, account.began_s)
        if during_s > 0:
            there = [t + during_s * c for t, c in zip(there, total(node.vector for node in nodes), strict=True)]
    if any(there[1:]):
        held = [0.0] * len(RESOURCES)
        for span in account.spans:
            during_s = span.until_s - span.since_s
            held = [h + during_s * v for h, v in zip(held, vector_of(span), strict=True)]
    else:
        held = [_gpu_seconds(account), 0.0, 0.0, 0.0]
    return {name: h / t for name, h, t in zip(RESOURCES, held, there, strict=True) if t}


def _gpu_seconds(account: Account) -> float:
    """The same, where GPUs are all there is: traces have many spans."""
    held = 0.0
    for span in account.spans:
        slices = span.partition.slices
        gpus = len(slices[0].gpus) if len(slices) == 1 else sum(len(s.gpus) for s in slices)
        held += (span.until_s - span.since_s) * gpus * span.share
    return held


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The quantile for this share, interpolated."""
    if not ascending:
        return None
    at = share * (len(ascending) - 1)
    low = int(at)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (at - low) * (ascending[high] - ascending[low])
