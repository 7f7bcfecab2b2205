"""The fold: what each event changes in the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import force_setattr, replace

from hocket.control.commit import end_job
from hocket.control.drain import leave_cleared_node, node_drained, node_undrained
from hocket.control.failures import forget_tenants, node_joined, node_lost, run_lost, runs_passed
from hocket.control.state import State
from hocket.control.stored_state import checkpointed, stored
from hocket.estimators import completion, convergence, phases, quality, run_time
from hocket.model.capacity import shape_of
from hocket.model.curve import Beliefs
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobRefused,
    JobRequest,
    JobResized,
    JobSaved,
    JobStarted,
    JobSubmitted,
    JobWarned,
    MetricUnseen,
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
    RunsPassed,
    StateStored,
    TimePassed,
    WorkLost,
)
from hocket.model.job import Job
from hocket.model.partition import Holding
from hocket.model.plan import Verdict
from hocket.model.reservation import excluded_nodes
from hocket.model.view import (
    NO_COSTS,
    RECENT_OBSERVATIONS,
    Doing,
    Hold,
    JobState,
    JobView,
    Observation,
    SuspendedProcess,
    Tenancy,
    Tier,
)

# Enum members cost a look-up each time; these are used on hot paths.
_WAITING, _RUNNING, _PAUSED = JobState.WAITING, JobState.RUNNING, JobState.PAUSED
_BROKE = {"stopped": "was stopped", "failed": "failed", "overran": "exceeded its time limit"}


def fold(state: State, events: Iterable[Event]) -> None:
    """Apply events to the state, each at its own time."""
    for event in events:
        at_s = event.at_s
        if at_s > state.now_s:
            state.now_s = at_s
        _FOLDS[type(event)](state, event)


def _submitted(state: State, event: JobSubmitted) -> None:
    job, at_s, beliefs = event.job, event.at_s, event.beliefs
    if state.holding and (excluded := excluded_nodes(state.holding, job.owner)):
        job = replace(job, excluded_nodes=excluded)
    if state.learns and beliefs.run_s is None:
        beliefs = run_time.believe(state.history, job, beliefs)
    if state.recalls:
        beliefs = completion.at_submission(job, state.past_jobs, beliefs)
    view = JobView(job, state.submissions, at_s, _WAITING, at_s, beliefs=beliefs, costs=event.costs)
    state.submissions += 1
    if (job.after or job.after_any) and (first := _live_predecessors(state, job)):
        state.add_follower(job)
        state.put_view(None, replace(view, held=Hold.FOLLOWS, reason=f"waits: it starts after {first}"))
    else:
        state.arrived[job.id] = None
        state.put_view(None, view)
    if job.criterion is not None:
        state.notes.judged.append(job.id)


def _live_predecessors(state: State, job: Job) -> str:
    """The jobs that it starts after and that have not ended yet, in words; empty if all have."""
    return ", ".join(f"'{first}'" for first in job.predecessors if first in state.jobs.live)


def _asked(state: State, event: JobAsked) -> None:
    view = state.jobs.live.get(event.job)
    if view is None or view.verdict:
        return
    by = f" by {event.by}" if event.by else ""
    if event.request is JobRequest.STOP:
        end_job(state, event.job, Verdict.STOPPED, f"stopped{by}")
        state.notes.freed = True
    elif event.request is JobRequest.PAUSE:
        _pause(state, view, f"paused{by}")
    elif view.held is not None:
        if first := _live_predecessors(state, view.job):
            state.put_view(view, replace(view, held=Hold.FOLLOWS, reason=f"waits: it starts after {first}"))
        else:
            _release(state, view, f"resumed{by}")


def _pause(state: State, view: JobView, reason: str) -> None:
    """The job loses its resources, and gets none until its user resumes it."""
    job_id = view.job.id
    tasks = {t.task for p in view.partitions for t in state.partitions.live[p].tenants if t.job == job_id}
    state.vacate(view)
    state.put_view(view, replace(view, partitions=(), held=Hold.PAUSED, held_until_s=None, reason=reason))
    state.update_leaving(view)
    for task in sorted(tasks):
        state.unsettle((job_id, task))
    state.arrived.pop(job_id, None)
    state.notes.freed = True


def _release(state: State, view: JobView, reason: str) -> None:
    """The job is no longer held: it waits like any other."""
    state.put_view(view, replace(view, held=None, held_until_s=None, reason=reason))
    state.arrived[view.job.id] = None


def _release_followers(state: State, job_id: str, broke: str) -> None:
    """A job has ended: jobs that name it may run, or are stopped if it failed and they name it in `after`."""
    for follower in state.followers.pop(job_id, ()):
        view = state.jobs.live.get(follower)
        if view is None or view.verdict:
            continue
        if broke and job_id in view.job.after:
            end_job(state, follower, Verdict.STOPPED, f"stopped: it was to start after '{job_id}', which {broke}")
        elif view.held is Hold.FOLLOWS and not _live_predecessors(state, view.job):
            _release(state, view, f"follows '{job_id}'")


def _settled(state: State, event: JobStarted | JobResized | JobMoved) -> None:
    """A start, resize or move is done: the tenant holds its new resources."""
    job_id, task = event.job, event.task
    view = state.jobs.live.get(job_id)
    if view is None:
        return
    others = view.tenancies
    for tenancy in others:
        if tenancy.task == task:
            break
    else:
        return
    holding = tenancy.coming or tenancy.holding
    now = Tenancy(task, holding)
    tenancies = (now,) if len(others) == 1 else tuple(now if t is tenancy else t for t in others)
    leaves = bool(state.leaving.live) and f"{job_id}/{task}" in state.leaving
    settled = state.accounted(view, tenancies, _RUNNING)  # It is in no snapshot yet, so it may be changed.
    if view.started_s is None:
        force_setattr(settled, "started_s", state.now_s)
    in_place = (type(event) is JobStarted or type(event) is JobResized) and event.in_place
    if view.suspended is not None:
        _continue_process(state, settled, view.suspended)
    if not in_place and _is_another_run(tenancy):
        force_setattr(settled, "starts", view.starts + 1)
        if event.attempt or view.job.is_protectable:
            _run_begins(state, settled)
    if view.prepared:
        force_setattr(settled, "prepared", False)
    if view.size and view.costs is not NO_COSTS and tenancy.doing is not Doing.NOTHING and not in_place:
        settled = _without_standstill(view, settled, tenancy)
    state.put_view(view, settled)
    if leaves:
        state.update_leaving(settled)  # The plan may have changed again since.
    if view.job.criterion is not None or view.job.limit_s is not None:
        state.notes.judged.append(job_id)
    if not _as_planned(state, job_id, task, holding):
        state.unsettle((job_id, task))


def _continue_process(state: State, settled: JobView, process: SuspendedProcess) -> None:
    """A suspended process goes on, with the work that it had not saved."""
    force_setattr(settled, "suspended", None)
    force_setattr(settled, "tier", process.on_disk)
    if process.unsaved_s is not None:
        _run_begins(state, settled)
        force_setattr(settled, "run_began_s", state.now_s - process.unsaved_s)


def _run_begins(state: State, settled: JobView) -> None:
    """A process starts that may lose work when it ends; when protection of the job ends, the policy decides again."""
    job, now_s = settled.job, state.now_s
    force_setattr(settled, "run_began_s", now_s)
    if job.is_protectable:
        state.notes.timers += [(now_s + after_s, job.id) for after_s in {job.min_run_s, job.protect_s} if after_s]


def _is_another_run(tenancy: Tenancy) -> bool:
    """Did the tenant start, or stop and start again elsewhere? If only its boundary changed, it kept running."""
    was, coming = tenancy.holding, tenancy.coming
    return coming is not None and (was is None or was.slices != coming.slices or was.replicas != coming.replicas)


def _without_standstill(view: JobView, settled: JobView, tenancy: Tenancy) -> JobView:
    """Subtract the estimated time of a resize or move: the job held resources, but did no work."""
    was, now = tenancy.holding, tenancy.coming
    if was is None or now is None or not _is_another_run(tenancy):
        return settled
    still_s = view.costs.restart_s(view.job.warm and now.stays_within(was)) * view.beliefs.speed_at(view.size)
    return replace(settled, done_s=max(view.done_s, settled.done_s - still_s * view.pace))


def _as_planned(state: State, job_id: str, task: str, holding: Holding | None) -> bool:
    if holding is None:
        return False
    partition = state.partitions.live.get(holding.partition)
    if partition is None or (partition.slices is not holding.slices and partition.slices != holding.slices):
        return False
    for t in partition.tenants:
        if t.job == job_id and t.task == task:
            same_length = t.boundary is holding.boundary or t.boundary == holding.boundary
            return same_length and (t.replicas is holding.replicas or t.replicas == holding.replicas)
    return False


def _left(state: State, event: JobPaused) -> None:
    """A tenant has left; if the plan has another place for it, it shall start there."""
    job_id, task = event.job, event.task
    view = state.jobs.live.get(job_id)
    if view is None:
        return
    tenancies = tuple([t for t in view.tenancies if t.task != task])
    state.leaving.drop(f"{job_id}/{task}")
    left = state.accounted(view, tenancies, view.state if tenancies else _PAUSED)
    force_setattr(left, "tier", event.tier)  # It is in no snapshot yet.
    if view.storing is not None:
        force_setattr(left, "storing", None)
    if event.node:
        on_disk = Tier.NONE if view.tier is Tier.MEMORY else view.tier
        unsaved_s = view.unsaved_at(state.now_s)[0] if view.run_began_s is not None else None
        process = SuspendedProcess(event.node, event.mem_mib, max(view.size, 1), on_disk, unsaved_s)
        force_setattr(left, "suspended", process)
        state.unsettle((job_id, task))  # There may be no room for it any more.
    if view.run_began_s is not None:
        force_setattr(left, "run_began_s", None)
    state.put_view(view, left)
    if event.node:
        state.update_leaving(left)
    if any(state.is_tenant(job_id, pid, task) for pid in view.partitions):
        state.unsettle((job_id, task))


def _over(state: State, event: JobEnded | JobFailed) -> None:
    """The job has ended: it is in no snapshot from now on."""
    job_id = event.job
    view = state.jobs.live.get(job_id)
    if view is None:
        return
    entry = (view.rank, view.number, job_id)
    if view.partitions:
        state.vacate(view)
        state.placed.drop(view.job.is_elastic, entry)
    elif not view.held:
        state.waiting.drop(shape_of(view.job), entry)
    if state.unsettled or state.leaving.live:
        forget_tenants(state, view)
    state.jobs.drop(job_id)
    state.index_holdings(job_id, view.tenancies, ())
    if not view.starts:
        state.arrived.pop(job_id, None)
    if state.shifts is not None:
        state.shifts.forget(job_id)
    if job_id in state.followers:
        _release_followers(state, job_id, _broke(event))
    if state.due and job_id in state.due:
        state.due = tuple(j for j in state.due if j != job_id)
    if view.size and state.learns:
        run_time.learn(state.history, view.job, view.ran_at(state.now_s))
    if state.recalls and view.starts:
        peaks = (event.peak_mib, event.peak_gpu_mib) if isinstance(event, JobEnded) else (0.0, 0.0)
        state.past_jobs = completion.with_ended(state.past_jobs, view, *peaks)
    state.notes.freed = True


def _broke(event: JobEnded | JobFailed) -> str:
    """What went wrong with a job that has ended, in words; empty if nothing did."""
    if isinstance(event, JobFailed):
        return "failed"
    if event.verdict == Verdict.MISSED:
        return "missed its criterion" if event.reason else ""  # Journals from before gave no reason: the others ran.
    return _BROKE.get(event.verdict, "")


def _failed(state: State, event: JobFailed) -> None:
    state.notes.alarm = True
    if event.final:
        _over(state, event)
    else:
        run_lost(state, event)


def _time_passed(state: State, event: TimePassed) -> None:
    for job_id in event.jobs:
        view = state.jobs.live.get(job_id)
        if view is None:
            continue
        if view.review_s is not None and view.review_s <= state.now_s:
            state.notes.alarm = True
            state.due += (job_id,)
            state.put_view(view, replace(view, review_s=None))
        if view.held_until_s is not None and view.held_until_s <= state.now_s:
            _release(state, view, "has rested")
        if view.run_began_s is not None and view.job.is_protectable:
            _may_be_preempted(state, job_id)
            now = state.jobs.live[job_id]
            state.put_view(now, replace(now))  # Its rank becomes that of this moment, as that of a job under review.
            leave_cleared_node(state, job_id)
        if view.job.criterion is not None or view.job.limit_s is not None:
            state.notes.judged.append(job_id)


def _observed(state: State, event: EpochEnded | ProgressReported) -> None:
    view = state.jobs.live.get(event.job)
    if view is None:
        return
    if view.job.criterion is not None:
        state.notes.judged.append(event.job)
    seen = observation(view, event)
    step = max(view.step, seen.step)
    if isinstance(event, ProgressReported) and event.step and view.epoch and not event.metrics:
        state.put_view(view, replace(view, step=step))  # How far it is within an epoch, and nothing else.
        return
    recent = (*view.observations, seen)[-RECENT_OBSERVATIONS:]
    use = event.use if isinstance(event, ProgressReported) and event.use is not None else view.use
    beliefs = _learned(view, event, state.now_s) if state.learns else view.beliefs
    if state.recalls:
        done_s = view.done_at(state.now_s)
        beliefs = completion.after_report(view, state.past_jobs, beliefs, seen.epoch, seen.metrics, done_s)
    epoch = max(view.epoch, seen.epoch)
    state.put_view(view, replace(view, epoch=epoch, step=step, observations=recent, use=use, beliefs=beliefs))
    state.notes.epoch_ended = True


def observation(view: JobView, event: EpochEnded | ProgressReported) -> Observation:
    """What a job has reported, with the step that it named last."""
    step = event.step if isinstance(event, ProgressReported) and event.step else view.step
    return Observation(event.at_s, event.epoch, event.metrics, step)


def _learned(view: JobView, event: EpochEnded | ProgressReported, now_s: float) -> Beliefs:
    """Update a job's beliefs by a report of its goal's metric."""
    job, beliefs = view.job, view.beliefs
    goal = job.goal
    if goal is None or (value := event.metrics.get(goal.metric)) is None:
        return beliefs
    if not view.epoch and isinstance(event, ProgressReported) and event.step:
        if goal is not job.criterion:
            return beliefs
        return quality.refitted(beliefs, goal, event.step, value, view.done_at(now_s), is_step=True)
    if goal is job.criterion:
        beliefs = quality.refitted(beliefs, goal, event.epoch, value, view.done_at(now_s))
    elif job.may_stop:
        beliefs = quality.noted(beliefs, event.epoch, value)
    if beliefs is not view.beliefs and (last := job.last_epoch) and job.may_stop:
        beliefs = convergence.refitted(beliefs, goal, event.epoch, last)
    return beliefs


def _phases_observed(state: State, event: PhasesObserved) -> None:
    view = state.jobs.live.get(event.job)
    if view is None or not state.learns:
        return
    beliefs = phases.observe(view.beliefs, event)
    state.put_view(view, replace(view, beliefs=beliefs))
    if phases.is_news(view.beliefs, beliefs):
        state.notes.alarm = True


def _prepared(state: State, event: JobPrepared) -> None:
    if (view := state.jobs.live.get(event.job)) is not None:
        state.put_view(view, replace(view, prepared=True, preparing=False))


def _seen_saved(state: State, event: JobSaved) -> None:
    view = state.jobs.live.get(event.job)
    if view is None:
        return
    if view.saved_s is None and view.job.is_protectable:
        _may_be_preempted(state, event.job)
    last = view.observations[-1] if view.observations else None
    epoch, step = (last.epoch, last.step) if last is not None else (0, 0)
    saved = replace(view, saved_s=event.at_s, saved_epoch=epoch, saved_step=step)
    if view.suspended is not None:  # Its state is in memory and on disk.
        saved = replace(saved, suspended=replace(view.suspended, on_disk=Tier.DISK, unsaved_s=0.0))
    else:
        saved = replace(saved, tier=Tier.DISK)
    state.put_view(view, saved)
    leave_cleared_node(state, event.job)


def _may_be_preempted(state: State, job_id: str) -> None:
    """The job's protection has ended, or part of it: the policy may decide otherwise."""
    state.notes.alarm = True
    if job_id not in state.due:
        state.due += (job_id,)


def _work_lost(state: State, event: WorkLost) -> None:
    if (view := state.jobs.live.get(event.job)) is not None:
        reason = f"{view.reason}; {event.in_words}" if view.reason else event.in_words
        state.put_view(view, replace(view, reason=reason))


def _owner_set(state: State, event: OwnerSet) -> None:
    state.set_owner(event.owner)
    state.notes.alarm = True


def _node_reserved(state: State, event: NodeReserved) -> None:
    new, others = event.reservation, [r for r in state.reservations if not r.is_over_at(state.now_s)]
    if any(new.name == other.name or new.overlaps(other) for other in others):
        return  # Two were asked for at once: the first has it.
    state.reservations = (*state.reservations, new)
    state.apply_reservations()


def _node_unreserved(state: State, event: NodeUnreserved) -> None:
    state.reservations = tuple(r for r in state.reservations if r.name != event.name)
    state.apply_reservations()


def _past_jobs_given(state: State, event: PastJobsGiven) -> None:
    state.past_jobs = completion.with_past(state.past_jobs, event.jobs)


def _policy_set(state: State, event: PolicySet) -> None:
    state.new_policy = event
    state.notes.alarm = True


def _ignored(state: State, _event: JobRefused | JobWarned | MetricUnseen) -> None:
    pass  # It changes no job; it is in the journal for users.


_FOLDS: dict[type, Callable[[State, Any], None]] = {
    JobSubmitted: _submitted,
    JobRefused: _ignored,
    JobWarned: _ignored,
    MetricUnseen: _ignored,
    JobAsked: _asked,
    JobPrepared: _prepared,
    JobStarted: _settled,
    JobResized: _settled,
    JobMoved: _settled,
    JobCheckpointed: checkpointed,
    JobSaved: _seen_saved,
    WorkLost: _work_lost,
    JobPaused: _left,
    StateStored: stored,
    ProgressReported: _observed,
    EpochEnded: _observed,
    PhasesObserved: _phases_observed,
    JobEnded: _over,
    JobFailed: _failed,
    RunsPassed: runs_passed,
    NodeJoined: node_joined,
    NodeLost: node_lost,
    NodeDrained: node_drained,
    NodeUndrained: node_undrained,
    NodeReserved: _node_reserved,
    NodeUnreserved: _node_unreserved,
    OwnerSet: _owner_set,
    PastJobsGiven: _past_jobs_given,
    PolicySet: _policy_set,
    TimePassed: _time_passed,
}
