"""Your own history under another policy: the truth about recorded jobs, as far as a journal tells it.

What a job did is its work: its time at the sizes it ran at. Sizes it never ran at come from a fitted law, jobs that
had not ended from what similar ones took; both are named. Crashes are not played again: what a job did over after one
counts as its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.ports import Cycle
from hocket.estimators import speed
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.criterion import Duration, RunTime
from hocket.model.curve import Curve, Point
from hocket.model.event import EpochEnded, JobSubmitted, NodeJoined, NodeLost, OwnerSet
from hocket.model.job import Owner
from hocket.model.plan import Verdict
from hocket.model.view import Costs
from hocket.policies.registry import BoundPolicy
from hocket.reports.account import Account, JobRecord, account
from hocket.reports.summary import Summary, quantile, summarise
from hocket.reports.switches import Switches
from hocket.workloads.truth import Fault, Submission, Truth, Workload


class Rebuilt(Struct, frozen=True):
    """A recorded workload, to be run again."""

    workload: Workload
    seen: dict[str, frozenset[int]]  # job → sizes it ran at
    unfinished: dict[str, str]  # job → what its work rests on instead of its end
    loss: float  # of the speed law
    loss_fitted: bool


class WhatIf(Struct, frozen=True):
    """One policy over a recorded workload."""

    summary: Summary
    account: Account
    extrapolated: dict[str, tuple[int, ...]]  # job → sizes it ran at now and never before


class Band(Struct, frozen=True):
    """How well the recorded policy, run again, gives what was recorded."""

    jct_mean_recorded_s: float | None
    jct_mean_again_s: float | None
    share: float | None  # difference of the means
    jobs_p95_share: float | None  # 95 % of the jobs differ by at most this share of their own completion time


def rebuild(recorded: Account, cycles: Iterable[Cycle]) -> Rebuilt:
    """The truth about the jobs of a journal, as far as it tells. A live one is told from its first submission on."""
    nodes = {node.id: node for node in recorded.header.nodes}
    is_live = not nodes
    switches = Switches(recorded.header) if is_live else None
    submitted: dict[str, JobSubmitted] = {}
    epochs: dict[str, list[EpochEnded]] = {}
    owners: dict[str, Owner] = {}
    faults: list[Fault] = []
    down: dict[str, float] = {}
    for cycle in cycles:
        if switches is not None:
            switches.see(cycle)
        for event in cycle.events:
            match event:
                case JobSubmitted():
                    submitted[event.job.id] = event
                case EpochEnded():
                    epochs.setdefault(event.job, []).append(event)
                case OwnerSet():
                    owners[event.owner.id] = event.owner
                case NodeLost():
                    down.setdefault(event.node, event.at_s)
                case NodeJoined() if event.node.id in down:
                    faults.append(Fault(down.pop(event.node.id), event.node.id, event.at_s))
                case NodeJoined():
                    nodes.setdefault(event.node.id, event.node)
                case _:
                    pass
    faults += [Fault(at_s, node) for node, at_s in down.items()]
    zero_s = recorded.began_s if is_live else 0.0
    costs = _measured(switches) if switches is not None else None
    ran = _time_by_size(recorded)
    rates = {r.job.id: _epoch_rates(epochs.get(r.job.id, []), recorded, n) for n, r in enumerate(recorded.jobs)}
    fitted = speed.fit_loss(rates.values())
    loss = speed.ASSUMED_LOSS if fitted is None else fitted
    typical_s = _typical_run_s(recorded)
    submissions, seen, unfinished = [], {}, {}
    for record in recorded.jobs:
        event = submitted[record.job.id]
        times = ran.get(record.job.id, {})
        seen[record.job.id] = frozenset(times)
        truth, rests_on = _truth(record, times, rates[record.job.id], epochs.get(record.job.id, []), loss, typical_s)
        if rests_on:
            unfinished[record.job.id] = rests_on
        truth = replace(truth, costs=event.costs if costs is None else costs)
        submissions.append(Submission(record.submitted_s - zero_s, record.job, truth, event.beliefs))
    workload = Workload(
        recorded.header.workload or "recorded",
        tuple(sorted(submissions, key=lambda s: s.at_s)),
        tuple(nodes.values()),
        tuple(owners.values()),
        tuple(_after(fault, zero_s) for fault in faults if fault.at_s >= zero_s),
    )
    return Rebuilt(workload, seen, unfinished, loss, fitted is not None)


def _measured(switches: Switches) -> Costs:
    return Costs(start_s=switches.median_s("start") or 0.0, stop_s=switches.median_s("pause") or 0.0)


def _after(fault: Fault, zero_s: float) -> Fault:
    return Fault(fault.at_s - zero_s, fault.node, None if fault.back_s is None else fault.back_s - zero_s)


def run_again(rebuilt: Rebuilt, policy: BoundPolicy, seed: int) -> WhatIf:
    """Simulate the recorded workload under a policy."""
    run = simulate(rebuilt.workload, rebuilt.workload.nodes, policy, seed=seed, beliefs=BeliefMode("learned"))
    accounted = account(run.journal.header, run.journal)
    extrapolated = {}
    for job_id, times in _time_by_size(accounted).items():
        new = times.keys() - rebuilt.seen[job_id]
        if new and rebuilt.seen[job_id]:
            extrapolated[job_id] = tuple(sorted(new))
    return WhatIf(summarise(accounted, run.decision_s), accounted, extrapolated)


def band(recorded: Account, again: Account) -> Band:
    """Compare a recorded run with its own policy run again, job by job."""
    then = {r.job.id: r.jct_s for r in recorded.jobs if r.jct_s is not None}
    now = {r.job.id: r.jct_s for r in again.jobs if r.jct_s is not None}
    both = [(then[j], now[j]) for j in then if j in now]
    if not both:
        return Band(None, None, None, None)
    mean_then, mean_now = sum(a for a, _ in both) / len(both), sum(b for _, b in both) / len(both)
    shares = sorted(abs(a - b) / a for a, b in both if a > 0)
    return Band(
        mean_then, mean_now, abs(mean_now - mean_then) / mean_then if mean_then else None, quantile(shares, 0.95)
    )


def _time_by_size(accounted: Account) -> dict[str, dict[int, float]]:
    """Training seconds at each size, by job: what it held less what it stood still, in proportion."""
    found: dict[str, dict[int, float]] = {}
    for span in accounted.spans:
        job_id = accounted.jobs[span.job].job.id
        size = span.partition.size_of(job_id, span.task)
        times = found.setdefault(job_id, {})
        times[size] = times.get(size, 0.0) + span.until_s - span.since_s
    for record in accounted.jobs:
        times = found.get(record.job.id, {})
        trained = 1 - record.stood_s / record.ran_s if record.ran_s else 1.0
        for size in times:
            times[size] *= max(0.0, trained)
    return found


def _epoch_rates(epochs: Sequence[EpochEnded], recorded: Account, number: int) -> dict[int, float]:
    """Epochs a second at each size, from pairs of epochs within one span."""
    if len(epochs) < 2:
        return {}
    job_id = recorded.jobs[number].job.id
    done: dict[int, tuple[float, float]] = {}
    for span in recorded.spans:
        if span.job != number:
            continue
        within = [e for e in epochs if span.since_s <= e.at_s <= span.until_s]
        if len(within) > 1 and within[-1].at_s > within[0].at_s:
            size = span.partition.size_of(job_id, span.task)
            count, time_s = done.get(size, (0.0, 0.0))
            done[size] = (count + within[-1].epoch - within[0].epoch, time_s + within[-1].at_s - within[0].at_s)
    return {size: count / time_s for size, (count, time_s) in done.items() if count > 0}


def _typical_run_s(recorded: Account) -> float | None:
    ended = [r.ran_s - r.stood_s for r in recorded.jobs if r.ended_s is not None and r.ran_s]
    return sum(ended) / len(ended) if ended else None


def _truth(
    record: JobRecord,
    times: dict[int, float],
    rates: dict[int, float],
    epochs: Sequence[EpochEnded],
    loss: float,
    typical_s: float | None,
) -> tuple[Truth, str]:
    """The truth about one job, and what it rests on if not on its end."""
    job = record.job
    reference = max(times, key=lambda n: times[n]) if times else job.sizes[-1]
    speeds = speed.curve(rates, job.sizes, reference, loss)
    run_s = sum(time_s * speeds.at(size).mean for size, time_s in times.items())
    rests_on = ""
    if record.verdict == Verdict.MISSED:
        rests_on = "missed its criterion: how it would have gone on is not recorded"
    elif record.ended_s is None:
        more_s = max(run_s, (typical_s or run_s) - run_s)
        rests_on = f"had not ended: believed to need {more_s:.0f} s more"
        run_s += more_s
    if isinstance(job.criterion, RunTime) and isinstance(job.criterion.limit, Duration):
        # Its user gave it a time, not an amount of work: it works for as long as it is let.
        run_s = max(run_s, job.criterion.limit.time_s * max(p.mean for p in speeds.points) * 2)
    metric = getattr(job.criterion, "metric", "") or ""
    points = {e.epoch: e.metrics[metric] for e in epochs if metric in e.metrics}
    quality = Curve(tuple(Point(float(n), v) for n, v in sorted(points.items()))) if points else None
    last = max((e.epoch for e in epochs), default=0)
    return Truth(run_s, reference, speeds, epochs=last, metric=metric, quality=quality), rests_on


def names(jobs: Iterable[str], most: int = 8) -> str:
    """Some names, and how many more."""
    listed = list(jobs)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most:,} more" if len(listed) > most else "")
