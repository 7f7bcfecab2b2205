"""Your own history under another policy: rebuilds the true behaviour of recorded jobs from a journal.

A job's work is its time at the sizes it ran at; time beside other jobs is converted to time alone (`work_alone.py`).
Speeds at other sizes come from a fitted law, the work of unfinished jobs from similar ones. All three are reported.
Nodes are drained, reserved and lost again when they were, so work that was lost with a node is not counted. Crashes are
not repeated: work that was repeated after a crash is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import gcd

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.ports import Cycle
from hocket.estimators import speed
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.criterion import Duration, RunTime
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import (
    EpochEnded,
    JobCheckpointed,
    JobEnded,
    JobMoved,
    JobPaused,
    JobResized,
    JobSaved,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeReserved,
    NodeUndrained,
    NodeUnreserved,
    OwnerSet,
    PastJobsGiven,
    PhasesObserved,
    PolicySet,
    ProgressReported,
)
from hocket.model.job import Job, Preempt
from hocket.model.plan import Verdict
from hocket.model.snapshot import demand_of
from hocket.model.view import Costs
from hocket.policies.registry import BoundPolicy
from hocket.reports.account import Account, JobRecord, Span, account
from hocket.reports.opening_cycles import opening_cycles
from hocket.reports.summary import Summary, quantile, summarise
from hocket.reports.switch_times import SwitchTimes
from hocket.reports.work_alone import Place, RecordedSpans, Work
from hocket.workloads.truth import Change, Fault, Submission, Truth, Workload


class Rebuilt(Struct, frozen=True):
    """A recorded workload, to be run again."""

    workload: Workload
    seen: dict[str, frozenset[Place]]  # job → where it ran
    unfinished: dict[str, str]  # job → how its work was estimated, if it had not ended
    shared: dict[str, str]  # job → why its work depends on the simulator's slow-down model
    loss: float  # of the speed law
    loss_fitted: bool

    def ruled(self, first: str) -> str:
        """The policies of the journal in order; this was the first."""
        return " → ".join([first, *(c.policy for c in self.workload.changes if isinstance(c, PolicySet))])


class WhatIf(Struct, frozen=True):
    """One policy over a recorded workload."""

    summary: Summary
    account: Account
    extrapolated: dict[str, tuple[Place, ...]]  # job → places where it ran now, but never in the record


class Band(Struct, frozen=True):
    """How close a new run of the recorded policy is to the record."""

    jct_mean_recorded_s: float | None
    jct_mean_again_s: float | None
    share: float | None  # difference of the means
    jobs_p95_share: float | None  # 95 % of the jobs differ by at most this share of their own completion time

    @property
    def times(self) -> float | None:
        """The mean of one run as a multiple of that of the other, over the jobs that ended in both."""
        then_s, again_s = self.jct_mean_recorded_s, self.jct_mean_again_s
        return again_s / then_s if then_s and again_s is not None else None


class _Told(Struct):
    """What the events of a journal say about one job."""

    submitted: JobSubmitted
    epochs: list[EpochEnded] = []
    phases: list[PhasesObserved] = []
    saved_s: list[float] = []  # when its state was saved
    first_save_s: float | None = None  # when it was first seen to save its state
    lost: list[tuple[float, float]] = []  # when it did the work that it lost with a node
    resumed: list[tuple[int, int]] = []  # after such a loss: the epoch from which it continued, and of how many
    used_gpus: float | None = None  # measured
    exited: bool = False  # its process ended by itself and its criterion was judged then: that was all its work


def rebuild(recorded: Account, cycles: Iterable[Cycle], begun: Controller | None = None) -> Rebuilt:
    """The true behaviour of a journal's jobs, as far as it is recorded; a live journal from its first submission on.

    `begun` is the controller where the cycles begin, if that is not with the first: `recorded` is then of these cycles
    behind `opening_cycles`.
    """
    nodes = {node.id: node for node in recorded.header.nodes}
    is_live = not nodes
    opening = opening_cycles(begun) if begun is not None else []
    switches = SwitchTimes(recorded.header, begun) if is_live else None
    told: dict[str, _Told] = {}
    owners: list[OwnerSet] = []
    policies: list[PolicySet] = []
    past_jobs: list[PastJobsGiven] = []
    of_nodes: list[NodeDrained | NodeUndrained | NodeReserved | NodeUnreserved] = []
    faults: list[Fault] = []
    losses: list[NodeLost] = []
    down: dict[str, float] = {}
    for number, cycle in enumerate(chain(opening, cycles)):
        if switches is not None and number >= len(opening):
            switches.add(cycle)
        for event in cycle.events:
            match event:
                case JobSubmitted():
                    told[event.job.id] = _Told(event)
                case EpochEnded(job=job) if job in told:
                    told[job].epochs.append(event)
                case PhasesObserved(job=job) if job in told:
                    told[job].phases.append(event)
                case ProgressReported(job=job) if job in told and event.use is not None:
                    told[job].used_gpus = event.use.gpus
                case JobResized(in_place=True):
                    pass  # Its process went on: nothing was saved.
                case JobPaused(job=job) | JobResized(job=job) | JobMoved(job=job) if job in told:
                    told[job].saved_s.append(event.at_s)
                case JobCheckpointed(job=job) if job in told:
                    told[job].saved_s.append(event.at_s - told[job].submitted.costs.checkpoint_s)
                case JobSaved(job=job) if job in told:
                    told[job].saved_s.append(event.at_s)
                    if told[job].first_save_s is None:
                        told[job].first_save_s = event.at_s
                case JobEnded(job=job, at_exit=True) if job in told:
                    told[job].exited = True
                case OwnerSet():
                    owners.append(event)
                case PolicySet():
                    policies.append(event)
                case PastJobsGiven():
                    past_jobs.append(event)
                case NodeDrained() | NodeUndrained() | NodeReserved() | NodeUnreserved():
                    of_nodes.append(event)
                case NodeLost():
                    down.setdefault(event.node, event.at_s)
                    losses.append(event)
                case NodeJoined() if event.node.id in down:
                    faults.append(Fault(down.pop(event.node.id), event.node.id, event.at_s))
                case NodeJoined():
                    nodes.setdefault(event.node.id, event.node)
                case _:
                    pass
    faults += [Fault(at_s, node) for node, at_s in down.items()]
    zero_s = recorded.began_s if is_live else 0.0
    costs = _measured(switches) if switches is not None else None
    ran = RecordedSpans(recorded, nodes)
    of = [told[r.job.id] for r in recorded.jobs]
    rates = [_epoch_rates(of[n].epochs, ran, n, of[n].submitted.beliefs) for n in range(len(of))]
    fitted = speed.fit_loss(rates)
    loss = speed.ASSUMED_LOSS if fitted is None else fitted
    _note_losses(losses, ran, of)
    truths = {n: _behaviour(r, of[n], ran, n, rates[n], loss) for n, r in enumerate(recorded.jobs)}
    works = [ran.work(n, truths, of[n].lost, _last_epoch(of[n])) for n in truths]
    typical_s = _typical_run_s(recorded, works)
    submissions, seen, unfinished, shared = [], {}, {}, {}
    for n, record in enumerate(recorded.jobs):
        job_id, event = record.job.id, of[n].submitted
        seen[job_id] = frozenset(ran.place(span) for span in ran.spans.get(n, ()))
        truth, rests_on = _truth(record, truths[n], works[n], typical_s, of[n].exited)
        if rests_on:
            unfinished[job_id] = rests_on
        if works[n].rests_on:
            shared[job_id] = works[n].rests_on
        truth = replace(truth, costs=event.costs if costs is None else costs)
        same = _protected(record.job, of[n].first_save_s, ran.spans.get(n, ()))
        submissions.append(Submission(record.submitted_s - zero_s, same, truth, event.beliefs))
    workload = Workload(
        recorded.header.workload or "recorded",
        tuple(sorted(submissions, key=lambda s: s.at_s)),
        tuple(nodes.values()),
        tuple({event.owner.id: event.owner for event in owners if event.at_s <= zero_s}.values()),
        tuple(_after(fault, zero_s) for fault in faults if fault.at_s >= zero_s),
        (
            *(replace(event, at_s=event.at_s - zero_s) for event in owners if event.at_s > zero_s),
            *(_since(event, zero_s) for event in past_jobs),
            *(_since(event, zero_s) for event in policies),
            *(_since(event, zero_s) for event in of_nodes),
        ),
    )
    return Rebuilt(workload, seen, unfinished, shared, loss, fitted is not None)


def _since(change: Change, zero_s: float) -> Change:
    """What was set, with times that count from then; what was set before is set at once."""
    if isinstance(change, NodeReserved):
        r = change.reservation
        until_s = None if r.until_s is None else r.until_s - zero_s
        change = replace(change, reservation=replace(r, from_s=r.from_s - zero_s, until_s=until_s))
    return replace(change, at_s=max(0.0, change.at_s - zero_s))


def _protected(job: Job, first_save_s: float | None, spans: Sequence[Span]) -> Job:
    """The job, protected from preemption for as long as it was: until it had saved its state.

    Its later runs are taken to need as long for that as the one in which it saved first.
    """
    if job.preempt is not Preempt.SAVED:
        return job
    if first_save_s is None:
        return replace(job, preempt=Preempt.NEVER)
    began_s = max((span.since_s for span in spans if span.since_s <= first_save_s), default=first_save_s)
    return replace(job, preempt=Preempt.ALWAYS, min_run_s=max(job.min_run_s, first_save_s - began_s))


def _measured(switches: SwitchTimes) -> Costs:
    return Costs(start_s=switches.median_s("start") or 0.0, stop_s=switches.median_s("pause") or 0.0)


def _after(fault: Fault, zero_s: float) -> Fault:
    return Fault(fault.at_s - zero_s, fault.node, None if fault.back_s is None else fault.back_s - zero_s)


def run_again(rebuilt: Rebuilt, policy: BoundPolicy, seed: int, as_set: bool = False) -> WhatIf:
    """Simulate the recorded workload under a policy, to the end or until another was set then."""
    workload = rebuilt.workload
    if not as_set:
        workload = replace(workload, changes=tuple(c for c in workload.changes if not isinstance(c, PolicySet)))
    run = simulate(workload, workload.nodes, policy, seed=seed, beliefs=BeliefMode("learned"))
    accounted = account(run.journal.header, run.journal, is_cut=False)
    ran = RecordedSpans(accounted, {node.id: node for node in rebuilt.workload.nodes})
    extrapolated = {}
    for number, spans in ran.spans.items():
        job_id = ran.jobs[number].id
        new = {ran.place(span) for span in spans} - rebuilt.seen[job_id]
        if new and rebuilt.seen[job_id]:
            extrapolated[job_id] = tuple(sorted(new))
    return WhatIf(summarise(accounted, run.decision_s), accounted, extrapolated)


def band(recorded: Account, again: Account) -> Band:
    """Compare a recorded run with another run of the same jobs, job by job."""
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


def _epoch_rates(epochs: Sequence[EpochEnded], ran: RecordedSpans, number: int, beliefs: Beliefs) -> dict[int, float]:
    """Epochs a second at each size, from pairs of epochs within one span that it had to itself."""
    if len(epochs) < 2:
        return {}
    done: dict[int, tuple[float, float]] = {}
    for span in ran.spans.get(number, ()):
        within = [e for e in epochs if span.since_s <= e.at_s <= span.until_s]
        if span.share == 1.0 and len(within) > 1 and within[-1].at_s > within[0].at_s:
            place = ran.place(span)
            pace = beliefs.pace_on(place.kind, len(span.partition.slices))
            count, time_s = done.get(place.size, (0.0, 0.0))
            count += within[-1].epoch - within[0].epoch
            done[place.size] = (count, time_s + (within[-1].at_s - within[0].at_s) * pace)
    return {size: count / time_s for size, (count, time_s) in done.items() if count > 0}


def _note_losses(losses: Iterable[NodeLost], ran: RecordedSpans, told: Sequence[_Told]) -> None:
    """Note when each job did the work that it lost with a node: since its last save, or since its previous loss.

    If a job continued from a later epoch, it had saved on its own.
    """
    ended: dict[float, list[Span]] = {}
    for spans in ran.spans.values():
        for span in spans:
            ended.setdefault(span.until_s, []).append(span)
    for loss in losses:
        at_s = loss.at_s
        for span in ended.get(at_s, ()):
            stays = {_base(s.task) for s in ran.spans[span.job] if s.since_s < at_s < s.until_s}
            if _base(span.task) in stays or all(part.node != loss.node for part in span.partition.slices):
                continue
            of = told[span.job]
            kept_s = max([t for t in of.saved_s if t <= at_s] + [until_s for _since, until_s in of.lost], default=0.0)
            before = [e for e in of.epochs if e.at_s <= at_s]
            then = next((e.epoch - 1 for e in of.epochs if e.at_s > at_s), 0)
            by_itself_s = max((e.at_s for e in before if e.epoch == then), default=0.0)
            if kept_s < by_itself_s:
                of.resumed.append((then, before[-1].epoch))
            if max(kept_s, by_itself_s) < at_s:
                of.lost.append((max(kept_s, by_itself_s), at_s))


def _saves_epochs(told: _Told) -> int:
    """After how many epochs the job saves on its own, as seen after losses; 0 if unknown."""
    if all(then == last for then, last in told.resumed):
        return min(1, len(told.resumed))
    return gcd(*(then for then, _last in told.resumed))


def _base(task: str) -> str:
    return task.partition("#")[0]


def _last_epoch(told: _Told) -> int:
    return max((e.epoch for e in told.epochs), default=0)


def _typical_run_s(recorded: Account, works: Sequence[Work]) -> float | None:
    ended = [w.run_s for r, w in zip(recorded.jobs, works, strict=True) if r.ended_s is not None and w.run_s]
    return sum(ended) / len(ended) if ended else None


def _behaviour(
    record: JobRecord, told: _Told, ran: RecordedSpans, number: int, rates: Mapping[int, float], loss: float
) -> Truth:
    """A job's speeds and reports; everything except its work."""
    job, beliefs, epochs = record.job, told.submitted.beliefs, told.epochs
    times: dict[int, float] = {}
    for span in ran.spans.get(number, ()):
        size = ran.holding(span).size
        times[size] = times.get(size, 0.0) + span.until_s - span.since_s
    reference = max(times, key=lambda n: times[n]) if times else job.sizes[-1]
    metric = getattr(job.criterion or job.target, "metric", "") or ""
    asked = [t.demand for t in job.tasks.tasks] if job.tasks is not None else [demand_of(job, "")]
    gpus = sum(d.gpu_load for d in asked)
    truth = Truth(
        0.0,
        reference,
        speed.curve(rates, job.sizes, reference, loss),
        kinds=beliefs.kinds,
        spread=beliefs.spread,
        epochs=_last_epoch(told),
        metric=metric,
        quality=_reported(epochs, metric),
        loss=_reported(epochs, "loss") if metric != "loss" else None,
        saves_epochs=_saves_epochs(told),
        gpu_use=told.used_gpus / gpus if told.used_gpus and gpus else 1.0,
    )
    phases = _phases(told, ran, number, reference)
    # If phases are known, they also give the speed at other sizes.
    return truth if phases is None else replace(truth, speed=None, comp_s=phases[0], comm_s=phases[1])


def _reported(epochs: Sequence[EpochEnded], metric: str) -> Curve | None:
    points = {e.epoch: e.metrics[metric] for e in epochs if metric in e.metrics}
    return Curve(tuple(Point(float(n), v) for n, v in sorted(points.items()))) if points else None


def _phases(told: _Told, ran: RecordedSpans, number: int, reference: int) -> tuple[float, float] | None:
    """COMP and COMM of an iteration at the reference size, as measured or as estimated before."""
    beliefs = told.submitted.beliefs
    comps, comms = [], []
    for seen in told.phases:
        span = next((s for s in ran.spans.get(number, ()) if s.since_s <= seen.at_s <= s.until_s), None)
        size = ran.holding(span).size if span is not None else seen.machines
        comps.append(seen.comp_s * size / reference)
        comms.append(seen.comm_s)
    if comps:
        return sum(comps) / len(comps), sum(comms) / len(comms)
    if beliefs.comp_s is None or beliefs.comm_s is None:
        return None
    return beliefs.comp_s.points[0].mean * beliefs.comp_s.points[0].x / reference, beliefs.comm_s.points[0].mean


def _truth(record: JobRecord, truth: Truth, work: Work, typical_s: float | None, exited: bool) -> tuple[Truth, str]:
    """The true behaviour of one job, and how it was estimated if the job had not ended."""
    job, run_s, rests_on = record.job, work.run_s, ""
    if work.iteration_s is not None:
        truth = replace(truth, comp_s=work.iteration_s)
    if record.verdict == Verdict.MISSED and not exited:
        rests_on = "missed its criterion: its later progress is not recorded"
    elif record.ended_s is None:
        more_s = max(run_s, (typical_s or run_s) - run_s)
        rests_on = f"had not ended: estimated to need {more_s:.0f} s more"
        run_s += more_s
    if isinstance(job.criterion, RunTime) and isinstance(job.criterion.limit, Duration):
        # `for T`: it runs for a time, not for an amount of work.
        fastest = max((p.mean for p in truth.speed.points), default=1.0) if truth.speed is not None else 1.0
        run_s = max(run_s, job.criterion.limit.time_s * fastest * 2)
    return replace(truth, run_s=run_s), rests_on


def names(jobs: Iterable[str], most: int = 8) -> str:
    """Some names, and how many more."""
    listed = list(jobs)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most:,} more" if len(listed) > most else "")
