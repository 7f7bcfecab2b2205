"""Commits a checked plan: what it changes in the state, and the actions that are possible now.

`commit` is the only entry. A change that must wait for another tenant to leave stays unsettled, and `next_actions`
looks at it again in every cycle.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, assert_never

from msgspec.structs import replace

from hocket.control.diff import diff
from hocket.control.state import Order, State
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.capacity import Capacity
from hocket.model.job import Kind
from hocket.model.partition import Holding, Partition, Sharing
from hocket.model.plan import Plan
from hocket.model.snapshot import LeavingTenants, Snapshot
from hocket.model.view import Doing, JobState, JobView, Tenancy, Tier

# Enum members cost a look-up each time; these are used on hot paths.
_RUNNING, _STARTING, _PAUSING = JobState.RUNNING, JobState.STARTING, JobState.PAUSING
_QUERY = Kind.QUERY
_NOTHING, _IS_STARTING, _IS_PAUSING, _NONE = Doing.NOTHING, Doing.STARTING, Doing.PAUSING, Tier.NONE
_ALONE = Sharing.ALONE


def commit(state: State, plan: Plan, capacity: Capacity) -> list[Action]:
    """Make a plan that passed the check the current one, and return the actions to send now.

    `capacity` is what is free under the plan, as computed by the check.
    """
    actions = commit_starts(state, plan, capacity)
    if actions is not None:
        return actions
    adopt(state, plan, capacity)
    return next_actions(state, plan)


def next_actions(state: State, plan: Plan | None = None) -> list[Action]:
    """The actions that are possible now for unsettled tenants, and the checkpoints of a plan that was just adopted."""
    if not state.unsettled and (plan is None or not plan.checkpoints):
        return []
    actions, settled = diff(state, plan)
    issue(state, actions, settled)
    return actions


def preview(snapshot: Snapshot, order: Order, plan: Plan, capacity: Capacity) -> list[Action]:
    """The actions that `commit` would return; changes nothing."""
    return commit(State(snapshot, order), plan, capacity)


# -- the common case ----------------------------------------------------------------------------------------


def commit_starts(state: State, plan: Plan, capacity: Capacity) -> list[Action] | None:
    """Commit a plan that only starts waiting jobs, with or without preempting others; None for other plans.

    Most plans are like this. The contract: it changes the state and returns actions exactly as `adopt` and
    `next_actions` do, and changes nothing if it returns None (`tests/property/test_commit.py`). It is faster since it
    replaces the view of each job once instead of three times.
    """
    if plan.ends or plan.tiers or plan.checkpoints or state.unsettled or state.leaving.live:
        return None
    pausing = _jobs_to_pause(state, plan) if plan.drop else []
    if pausing is None:
        return None
    starting = _jobs_to_start(state, plan, bool(pausing)) if plan.put else []
    if starting is None:
        return None
    _take_over(state, plan, capacity)
    actions: list[Action] = []
    for old, view in pausing:
        state.count_usage(old, -1)
        state.partitions.drop(old.id)
        actions.append(_pause(state, plan, view))
    leaving = LeavingTenants(state) if pausing else None
    for new, view in starting:
        state.partitions.put(new.id, new)
        state.count_usage(new, 1)
        waits = leaving is not None and bool(leaving.in_the_way("", new.slices))
        if (action := _start(state, plan, view, new, waits)) is not None:
            actions.append(action)
    reasons = plan.reasons
    if plan.memos or plan.reviews or len(reasons) != len(pausing) + len(starting) or "*" in reasons:
        _note_others(state, plan, {view.job.id for _partition, view in (*pausing, *starting)})
    return actions


def _jobs_to_pause(state: State, plan: Plan) -> list[tuple[Partition, JobView]] | None:
    """The dropped partitions with their jobs; None unless each job is alone there and no change is under way for it."""
    jobs, partitions = state.jobs.live, state.partitions.live
    found: list[tuple[Partition, JobView]] = []
    for pid in plan.drop:
        old = partitions[pid]
        if len(old.tenants) != 1 or old.sharing is not _ALONE:
            return None
        view = jobs[old.tenants[0].job]
        if len(view.tenancies) != 1 or len(view.partitions) != 1:
            return None
        tenancy = view.tenancies[0]
        held = tenancy.holding
        if tenancy.doing is not _NOTHING or tenancy.task or held is None or held.slices != old.slices:
            return None
        if view.keep is not None or view.job.kind is _QUERY:
            return None  # Where its state is kept is to be decided.
        found.append((old, view))
    return found


def _jobs_to_start(state: State, plan: Plan, others_pause: bool) -> list[tuple[Partition, JobView]] | None:
    """The new partitions with their jobs; None unless each is new, for one job that waits and need not prepare."""
    jobs, partitions = state.jobs.live, state.partitions.live
    found: list[tuple[Partition, JobView]] = []
    for new in plan.put:
        if len(new.tenants) != 1 or new.id in partitions:
            return None
        tenant = new.tenants[0]
        view = jobs[tenant.job]
        if view.partitions or view.tenancies or view.preparing or tenant.task or (others_pause and view.job.warm):
            return None
        if view.suspended is not None or view.storing is not None:
            return None
        found.append((new, view))
    return found


def _pause(state: State, plan: Plan, view: JobView) -> Pause:
    """A job loses its only partition; what it holds blocks other jobs until it has left."""
    job_id = view.job.id
    holding = view.tenancies[0].holding
    assert holding is not None
    tenancies = (Tenancy("", holding, _IS_PAUSING),)
    noted = replace(view, **_notes(plan, job_id)) if plan.memos or plan.reviews else view
    reason = plan.reasons.get(job_id, view.reason)
    state.put_view(view, replace(noted, partitions=(), tenancies=tenancies, state=_PAUSING, reason=reason))
    for part in holding.slices:
        if part.gpus or part.cores or part.mem_mib or part.net_mbps:  # Some jobs request no resources.
            state.leaving.put(f"{job_id}/", holding.slices)
            break
    return Pause(job_id, "", Tier.DISK, holding.boundary)


def _start(state: State, plan: Plan, view: JobView, new: Partition, waits: bool) -> Start | Resume | None:
    """A waiting job gets a partition; it starts now, or is unsettled while other jobs still hold the resources."""
    pid, tenant = new.id, new.tenants[0]
    job_id = tenant.job
    noted = replace(view, **_notes(plan, job_id)) if plan.memos or plan.reviews else view
    reason = plan.reasons.get(job_id, view.reason)
    if waits:
        state.put_view(view, replace(noted, partitions=(pid,), reason=reason))
        state.unsettled[job_id, ""] = None
        return None
    to = Holding(pid, new.slices, tenant.replicas, tenant.boundary)
    tenancies = (Tenancy("", None, _IS_STARTING, to),)
    starting = replace(noted, partitions=(pid,), tenancies=tenancies, state=_STARTING, reason=reason)
    state.put_view(view, starting)
    if state.shifts is not None:
        state.shifts.schedule_start(starting, to, state.now_s)
    return (Start if view.tier is _NONE else Resume)(job_id, "", to, new)


# -- every plan ---------------------------------------------------------------------------------------------


def adopt(state: State, plan: Plan, capacity: Capacity) -> None:
    """Make a checked plan the current one. Tenants that it changes become unsettled."""
    _take_over(state, plan, capacity)
    tenants: dict[tuple[str, str], None] = {}
    places: dict[str, list[str]] = {}  # job → partitions of the plan that it is in
    gone: set[str] = set()  # shared partitions that are dropped, moved, or no longer shared
    for pid in plan.drop:
        old = state.partitions.live[pid]
        state.count_usage(old, -1)
        state.partitions.drop(pid)
        if old.sharing is not _ALONE:
            gone.add(pid)
        for t in old.tenants:
            places.setdefault(t.job, [])
            tenants[t.job, t.task] = None
    for new in plan.put:
        before = state.partitions.live.get(new.id)
        if before is not None:
            state.count_usage(before, -1)
            if before.sharing is not _ALONE and (before.slices != new.slices or new.sharing is _ALONE):
                gone.add(new.id)
            for t in before.tenants:
                places.setdefault(t.job, [])
                tenants[t.job, t.task] = None
        state.count_usage(new, 1)
        state.partitions.put(new.id, new)
        for t in new.tenants:
            pids = places.setdefault(t.job, [])
            if new.id not in pids:  # Several tasks of a job may share a partition.
                pids.append(new.id)
            tenants[t.job, t.task] = None
    if tenants:
        state.unsettled |= tenants
        _place_jobs(state, plan, places)
    if gone:
        state.update_leaving_of(gone)
    _note_others(state, plan, places)
    for job_id, verdict in plan.ends.items():
        end_job(state, job_id, verdict, plan.reasons.get(job_id, ""))
    for job_id, tier in plan.tiers.items():
        view = state.jobs.live[job_id]
        state.put_view(view, replace(view, keep=tier))
        state.unsettle((job_id, ""))


def _take_over(state: State, plan: Plan, capacity: Capacity) -> None:
    """What a plan sets for the whole state, not for a job."""
    state.memo = plan.memo
    state.wake = plan.wake
    state.decision += 1
    state.arrived, state.due = {}, ()
    state.capacity = capacity


def _place_jobs(state: State, plan: Plan, places: dict[str, list[str]]) -> None:
    """Give each view the partitions that the plan has its job in."""
    touched: set[str] | None = None
    for job_id, pids in places.items():
        view = state.jobs.live[job_id]
        if view.partitions:
            touched = touched or {*plan.drop, *(p.id for p in plan.put)}
            pids = list(dict.fromkeys([*(p for p in view.partitions if p not in touched), *pids]))
        state.put_view(view, replace(view, partitions=tuple(pids), **_notes(plan, job_id)))
        if view.tenancies or view.suspended is not None:
            state.update_leaving(state.jobs.live[job_id])


def _note_others(state: State, plan: Plan, done: Container[str]) -> None:
    """Keep what the plan says about jobs that it leaves where they are."""
    noted: set[str] = set()
    for said in (plan.memos, plan.reasons, plan.reviews):
        for job_id in said:
            if job_id in done or job_id in noted or (view := state.jobs.live.get(job_id)) is None:
                continue
            noted.add(job_id)
            new = replace(view, **_notes(plan, job_id))
            if said is plan.memos:
                if state.shifts is not None:
                    state.shifts.memo_changed(job_id)
                state.put_view(view, new)  # Its rank may depend on its memo.
            else:
                state.jobs.put(job_id, new)


def _notes(plan: Plan, job_id: str) -> dict[str, Any]:
    """What the plan says about one job, as fields of its view."""
    notes: dict[str, Any] = {}
    if (reason := plan.reasons.get(job_id)) is not None:
        notes["reason"] = reason
    if (review_s := plan.reviews.get(job_id)) is not None:
        notes["review_s"] = review_s
    if plan.memos and job_id in plan.memos:
        notes["memo"] = plan.memos[job_id]
    return notes


def end_job(state: State, job_id: str, verdict: str, reason: str) -> None:
    """The job shall end; its resources are not used by another job until it has."""
    view = state.jobs.live[job_id]
    tasks = {t.task for p in view.partitions for t in state.partitions.live[p].tenants if t.job == job_id}
    state.vacate(view)
    state.put_view(view, replace(view, partitions=(), verdict=str(verdict), reason=reason or view.reason))
    state.update_leaving(view)
    for task in sorted(tasks | {t.task for t in view.tenancies}) or [""]:
        state.unsettle((job_id, task))


# -- what executors are told --------------------------------------------------------------------------------


def issue(state: State, actions: Iterable[Action], settled: Iterable[tuple[str, str]] = ()) -> None:
    """Record which changes are now under way, and which tenants are already as planned."""
    done = set(settled)
    for action in actions:
        view = state.jobs.live[action.job]
        if type(action) is Start or type(action) is Resume:  # `match` patterns are slow, and this code runs often.
            task, to = action.task, action.to
            tenancy = Tenancy(task, None, _IS_STARTING, to)
            _put_tenancy(state, view, tenancy, _RUNNING if view.size else _STARTING)
            if not view.size and state.shifts is not None:
                state.shifts.schedule_start(view, to, state.now_s)
            done.add((action.job, task))
            continue
        match action:
            case Pause(_, task, tier, _):
                _begin_change(state, view, task, Doing.PAUSING, None, _PAUSING)
                if tier is Tier.MEMORY:  # A controller that is restored tells its executor again.
                    state.jobs.put(action.job, replace(state.jobs.live[action.job], storing=tier))
                done.add((action.job, task))
            case End():
                for tenancy in view.tenancies:
                    now = state.jobs.live[action.job]
                    _begin_change(state, now, tenancy.task, Doing.ENDING, tenancy.coming, _PAUSING)
            case Resize(_, task, to, _):
                _begin_change(state, view, task, Doing.RESIZING, to, view.state)
                done.add((action.job, task))
            case Move(_, task, to, _):
                _begin_change(state, view, task, Doing.MOVING, to, view.state)
                done.add((action.job, task))
            case Prepare():
                state.jobs.put(action.job, replace(view, preparing=True))
            case Store(_, tier):
                state.jobs.put(action.job, replace(view, storing=tier))
            case Checkpoint():
                pass
            case _:
                assert_never(action)
    for key in done:
        state.unsettled.pop(key, None)


def _begin_change(state: State, view: JobView, task: str, doing: Doing, to: Holding | None, becomes: JobState) -> None:
    """A change of a running tenant begins; the job's state changes too, unless other tenants of it keep running."""
    tenancy = next(t for t in view.tenancies if t.task == task)
    others_run = any(t.task != task and t.doing is _NOTHING for t in view.tenancies)
    _put_tenancy(state, view, Tenancy(task, tenancy.holding, doing, to), view.state if others_run else becomes)


def _put_tenancy(state: State, view: JobView, tenancy: Tenancy, becomes: JobState) -> None:
    tenancies = (*[t for t in view.tenancies if t.task != tenancy.task], tenancy)
    state.jobs.put(view.job.id, replace(view, tenancies=tenancies, state=becomes))
    state.index_holdings(view.job.id, view.tenancies, tenancies)
