"""The plan becomes the plan, and what an executor was told is written down: how decisions change the state."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, assert_never

from msgspec.structs import replace

from hocket.control.state import State
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.capacity import Capacity
from hocket.model.partition import Holding, Partition, Sharing
from hocket.model.plan import Plan
from hocket.model.snapshot import Leavers
from hocket.model.view import Doing, JobState, JobView, Tenancy, Tier

# Members of an enum cost a look-up each time; these stand on hot paths.
_RUNNING, _STARTING, _PAUSING = JobState.RUNNING, JobState.STARTING, JobState.PAUSING
_NOTHING, _IS_STARTING, _IS_PAUSING, _NONE = Doing.NOTHING, Doing.STARTING, Doing.PAUSING, Tier.NONE
_ALONE = Sharing.ALONE


def adopt(state: State, plan: Plan, capacity: Capacity) -> None:
    """Make a checked plan the plan, and what the check found to be free then. What changes is unsettled."""
    state.memo = plan.memo
    state.wake = plan.wake
    state.decision += 1
    state.arrived, state.due = [], ()
    state.capacity = capacity
    tenants: dict[tuple[str, str], None] = {}
    places: dict[str, list[str]] = {}  # job → partitions of the plan that it is in
    gone: set[str] = set()  # shared partitions whose resources are no longer theirs, or no longer shared
    for pid in plan.drop:
        old = state.partitions.live[pid]
        state.count(old, -1)
        state.partitions.drop(pid)
        if old.sharing is not _ALONE:
            gone.add(pid)
        for t in old.tenants:
            places.setdefault(t.job, [])
            tenants[t.job, t.task] = None
    for new in plan.put:
        before = state.partitions.live.get(new.id)
        if before is not None:
            state.count(before, -1)
            if before.sharing is not _ALONE and (before.slices != new.slices or new.sharing is _ALONE):
                gone.add(new.id)
            for t in before.tenants:
                places.setdefault(t.job, [])
                tenants[t.job, t.task] = None
        state.count(new, 1)
        state.partitions.put(new.id, new)
        for t in new.tenants:
            pids = places.setdefault(t.job, [])
            if new.id not in pids:  # Several tasks of a job may share a partition.
                pids.append(new.id)
            tenants[t.job, t.task] = None
    if tenants:
        state.unsettled = tuple(dict.fromkeys(state.unsettled) | tenants) if state.unsettled else tuple(tenants)
        _stand(state, plan, places)
    if gone:
        state.note_leavers(gone)
    _take_notes(state, plan, places)
    if plan.ends:
        for job_id, verdict in plan.ends.items():
            end_job(state, job_id, verdict, plan.reasons.get(job_id, ""))
    if plan.tiers:
        for job_id, tier in plan.tiers.items():
            view = state.jobs.live[job_id]
            state.put_view(view, replace(view, keep=tier))
            state.unsettle((job_id, ""))


def carry_out(state: State, plan: Plan, capacity: Capacity) -> list[Action] | None:
    """Adopt a plan that only starts waiting jobs, in the place of running ones or not; None if this is no such plan.

    Most plans are. It does what `adopt`, `diff` and `issue` do one after another, with one new view a job.
    """
    if plan.ends or plan.tiers or plan.checkpoints or state.unsettled or state.leaving.live:
        return None
    jobs, partitions = state.jobs.live, state.partitions.live
    going: list[tuple[Partition, JobView]] = []
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
            return None  # Something is under way for it.
        going.append((old, view))
    coming: list[tuple[Partition, JobView]] = []
    for new in plan.put:
        if len(new.tenants) != 1 or new.id in partitions:
            return None  # Someone else may have it still.
        tenant = new.tenants[0]
        view = jobs[tenant.job]
        if view.partitions or view.tenancies or view.preparing or tenant.task or (going and view.job.warm):
            return None
        coming.append((new, view))
    state.memo = plan.memo
    state.wake = plan.wake
    state.decision += 1
    state.arrived, state.due = [], ()
    state.capacity = capacity
    actions: list[Action] = []
    counts, reasons = state.counts, plan.reasons
    more = bool(plan.memos or plan.reviews)  # notes beside reasons
    for old, view in going:
        if counts:
            state.count(old, -1)
        state.partitions.drop(old.id)
        actions.append(_pause(state, plan, view))
    leavers = Leavers(state)
    for new, view in coming:
        pid, tenant = new.id, new.tenants[0]
        state.partitions.put(pid, new)
        if counts:
            state.count(new, 1)
        job_id = tenant.job
        noted = replace(view, **_noted(plan, job_id)) if more else view
        reason = reasons.get(job_id, view.reason)
        if going and leavers.in_the_way("", new.slices):
            state.put_view(view, replace(noted, partitions=(pid,), reason=reason))
            state.unsettled += ((job_id, ""),)
            continue
        to = Holding(pid, new.slices, tenant.replicas, tenant.boundary)
        tenancies = (Tenancy("", None, _IS_STARTING, to),)
        starting = replace(noted, partitions=(pid,), tenancies=tenancies, state=_STARTING, reason=reason)
        state.put_view(view, starting)
        if state.shifts is not None:
            state.foresee_start(starting, to)
        actions.append((Start if view.tier is _NONE else Resume)(job_id, "", to, new))
    if more or len(reasons) != len(going) + len(coming) or "*" in reasons:
        _take_notes(state, plan, {view.job.id for _partition, view in (*going, *coming)})
    return actions


def _pause(state: State, plan: Plan, view: JobView) -> Pause:
    """A job leaves the only place it has; what it holds is in others' way until it has."""
    job_id = view.job.id
    holding = view.tenancies[0].holding
    assert holding is not None
    tenancies = (Tenancy("", holding, _IS_PAUSING),)
    noted = replace(view, **_noted(plan, job_id)) if plan.memos or plan.reviews else view
    reason = plan.reasons.get(job_id, view.reason)
    state.put_view(view, replace(noted, partitions=(), tenancies=tenancies, state=_PAUSING, reason=reason))
    for part in holding.slices:
        if part.gpus or part.cores or part.mem_mib or part.net_mbps:  # Some jobs ask for nothing.
            state.leaving.put(f"{job_id}/", holding.slices)
            break
    return Pause(job_id, "", view.keep, holding.boundary)


def _take_notes(state: State, plan: Plan, done: Container[str]) -> None:
    """Keep what the plan says about jobs that it leaves where they are."""
    taken: set[str] = set()
    for notes in (plan.memos, plan.reasons, plan.reviews):
        for job_id in notes:
            if job_id in done or job_id in taken or (view := state.jobs.live.get(job_id)) is None:
                continue
            taken.add(job_id)
            noted = replace(view, **_noted(plan, job_id))
            if notes is plan.memos:
                state.foreseen.pop(job_id, None)
                state.put_view(view, noted)  # Its rank may rest on its memo, and so may when that changes.
            else:
                state.jobs.put(job_id, noted)


def _stand(state: State, plan: Plan, places: dict[str, list[str]]) -> None:
    """Stand each job where the plan has it."""
    touched: set[str] | None = None
    for job_id, pids in places.items():
        view = state.jobs.live[job_id]
        if view.partitions:
            touched = touched or {*plan.drop, *(p.id for p in plan.put)}
            pids = list(dict.fromkeys([*(p for p in view.partitions if p not in touched), *pids]))
        state.put_view(view, replace(view, partitions=tuple(pids), **_noted(plan, job_id)))
        if view.tenancies:
            state.note_leaving(view)


def end_job(state: State, job_id: str, verdict: str, reason: str) -> None:
    """The job shall be over; its resources are promised to nobody until it is."""
    view = state.jobs.live[job_id]
    tasks = {t.task for p in view.partitions for t in state.partitions.live[p].tenants if t.job == job_id}
    state.vacate(view)
    state.put_view(view, replace(view, partitions=(), verdict=str(verdict), reason=reason or view.reason))
    state.note_leaving(view)
    for task in sorted(tasks | {t.task for t in view.tenancies}) or [""]:
        state.unsettle((job_id, task))


def issue(state: State, actions: Iterable[Action], settled: Iterable[tuple[str, str]] = ()) -> None:
    """Write down what an executor was told, and who turned out to be as planned."""
    done = set(settled)
    for action in actions:
        view = state.jobs.live[action.job]
        if type(action) is Start or type(action) is Resume:  # Patterns are slow, and these come all the time.
            task, to = action.task, action.to
            tenancy = Tenancy(task, None, _IS_STARTING, to)
            _doing(state, view, task, tenancy, _RUNNING if view.size else _STARTING)
            if not view.size:
                state.foresee_start(view, to)
            done.add((action.job, task))
            continue
        match action:
            case Pause(_, task, _, _):
                _goes(state, view, task, Doing.PAUSING, None, _PAUSING)
                done.add((action.job, task))
            case End():
                for tenancy in view.tenancies:
                    _goes(state, state.jobs.live[action.job], tenancy.task, Doing.ENDING, tenancy.coming, _PAUSING)
            case Resize(_, task, to, _):
                _goes(state, view, task, Doing.RESIZING, to, view.state)
                done.add((action.job, task))
            case Move(_, task, to, _):
                _goes(state, view, task, Doing.MOVING, to, view.state)
                done.add((action.job, task))
            case Prepare():
                state.jobs.put(action.job, replace(view, preparing=True))
            case Checkpoint() | Store():
                pass
            case _:
                assert_never(action)
    if done:
        state.unsettled = tuple([key for key in state.unsettled if key not in done])


def _goes(state: State, view: JobView, task: str, doing: Doing, to: Holding | None, becomes: JobState) -> None:
    tenancy = next(t for t in view.tenancies if t.task == task)
    others = any(t.task != task and t.doing is _NOTHING for t in view.tenancies)
    _doing(state, view, task, Tenancy(task, tenancy.holding, doing, to), view.state if others else becomes)


def _doing(state: State, view: JobView, task: str, tenancy: Tenancy, becomes: JobState) -> None:
    others = view.tenancies
    if others:
        others = tuple(t for t in others if t.task != task)
    tenancies = (*others, tenancy)
    state.jobs.put(view.job.id, replace(view, tenancies=tenancies, state=becomes))
    if state.holders is not None:
        state.note_holder(view.job.id, view.tenancies, tenancies)


def _noted(plan: Plan, job_id: str) -> dict[str, Any]:
    """What the plan says about one job, as fields of its view."""
    noted: dict[str, Any] = {}
    if (reason := plan.reasons.get(job_id)) is not None:
        noted["reason"] = reason
    if (review_s := plan.reviews.get(job_id)) is not None:
        noted["review_s"] = review_s
    if plan.memos and job_id in plan.memos:
        noted["memo"] = plan.memos[job_id]
    return noted
