"""Tiresias' discretised two-dimensional least attained service (2D-LAS), without knowledge of run times."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.common_params import EverydayParams
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.lent_gpus import elastic_jobs, lend_idle, lent_to, start_in_lent
from hocket.policies.registry import policy

_SLACK_GPU_S = 1e-3  # a review comes at the threshold, give or take a rounding
_LEAVING_S = 1.0  # how soon, at the earliest, a job is reviewed that was paused and has not left yet
_NO_JOB_WAITS, _ROOM_WANTED = Wake(freed_gpus=None, epoch=False), Wake(freed_gpus=1, epoch=False)


class Las(EverydayParams, frozen=True):
    levels_gpu_s: Annotated[
        tuple[float, ...], Meta(description="attained service at which a job is demoted by one level")
    ] = (3600.0, 36000.0, 360000.0)
    promote: Annotated[
        float,
        Meta(ge=0, description="a job that waited this many times as long as it ran is promoted to the top; 0: never"),
    ] = 0.0

    def __post_init__(self) -> None:
        if not all(one < next_one for one, next_one in pairwise((0.0, *self.levels_gpu_s, inf))):
            raise ValueError("levels_gpu_s: each must be above 0 and above the one before it")


_FIRST = (-inf, 0)  # before all classes of jobs


def rank(view: JobView, now_s: float, params: Las) -> tuple[int, int, float]:
    """Priority, the highest first, and level, 0 at the top: the job's class. In it by first start, or by submission.

    Service is GPUs times seconds, the two dimensions. The memo is the service up to the last promotion: it is forgiven.
    """
    service_gpu_s = view.attained_at(now_s) - (view.memo or 0.0)
    level = bisect_right(params.levels_gpu_s, service_gpu_s + _SLACK_GPU_S)
    if level and params.promote and _is_starved(view, now_s, params):
        level = 0
    started = view.started_s
    return -view.job.priority if params.priority else 0, level, view.submitted_s if started is None else started


def _class(view: JobView) -> tuple[int, int]:
    """Jobs of one class never preempt each other; those of a higher one preempt lower ones."""
    return view.rank[:2]


def next_demotion_s(view: JobView, now_s: float, params: Las) -> float | None:
    """When the job reaches the next threshold, on the GPUs that it has."""
    return _demotion_s(view, now_s, params, view.gpus) if view.gpus else None


def _demotion_s(view: JobView, now_s: float, params: Las, gpus: int) -> float | None:
    levels = params.levels_gpu_s
    service_gpu_s = view.attained_at(now_s) - (view.memo or 0.0)
    level = bisect_right(levels, service_gpu_s + _SLACK_GPU_S)
    return None if level == len(levels) else now_s + (levels[level] - service_gpu_s) / gpus


@policy(
    "las",
    params=Las,
    order=rank,
    shifts=next_demotion_s,
    paper="Tiresias, NSDI'19",
    reads_beliefs=False,
    reads_usage=False,
    reads=("priority",),
)
def decide(snapshot: Snapshot, params: Las) -> Plan:
    """Least attained service first, in levels; a job on a higher level takes the place of lower ones.

    Two-dimensional: service is GPUs times seconds. Discretised: jobs of one level never preempt each other. A job is
    demoted when its service passes a threshold, and promoted to the top when it has starved. A higher priority goes
    before all of that.
    """
    draft = Draft(snapshot)
    if not snapshot.waiting.count:
        return _planned(draft, params, waits=False)
    last = snapshot.placed.last()
    lowest = last[0][:2] if last is not None else _FIRST  # the lowest class of placed jobs
    lent = sum(lent_to(draft, view) for view in elastic_jobs(draft)) if draft.has_elastic and params.lend else 0
    try_all = lent > 0 or _may_fit_now(draft)
    if try_all:
        waiting = draft.candidates(draft.free_gpus + lent, lowest, over_quota=True)
    else:
        waiting = draft.waiting_among(snapshot.arrived, over_quota=True)
    preempted = False
    for view in waiting:  # from the highest class to the lowest
        if preempted and _class(view) >= lowest:
            break  # It preempts no job, and competes with preempted ones for what is left: see below.
        if _start(draft, view, params):
            continue
        if _class(view) < lowest and _preempt(draft, view, params):
            preempted = True
        else:
            draft.pass_over(view)
    if preempted:
        rest = iter(()) if draft.is_full else draft.candidates(draft.free_gpus)
        for view in draft.with_displaced(rest, lambda v: v.rank):
            # A job that made way may be of a higher class than one that did not have to.
            if draft.size_of(view) or _start(draft, view, params):
                continue
            if not (_class(view) < lowest and _preempt(draft, view, params)):
                draft.pass_over(view)
    if params.promote:
        _review_starving(draft, params, try_all)
    return _planned(draft, params, waits=snapshot.waiting.count > draft.started - draft.paused)


def _planned(draft: Draft, params: Las, waits: bool) -> Plan:
    """The plan, after idle GPUs were lent."""
    lending = lend_idle(draft, params)
    room_wanted = _ROOM_WANTED
    if waits and (at_s := _next_demotion_of_borrowers_s(draft, params)) is not None:
        room_wanted = replace(_ROOM_WANTED, at_s=at_s)
    if draft.over_quota:
        return draft.plan(lending.wake(room_wanted))
    return draft.plan(lending.wake(room_wanted if waits else _NO_JOB_WAITS), memo=draft.room_mark)


def _next_demotion_of_borrowers_s(draft: Draft, params: Las) -> float | None:
    """When a job that GPUs are lent to sinks, at the earliest: then they may go to one that waits on its new level.

    It is no overtaking, as it may still stand before that one.
    """
    if not (draft.has_elastic and params.lend):
        return None
    now_s = draft.snapshot.now_s
    lent = [(view, max(view.gpus, draft.gpus_of(view))) for view in elastic_jobs(draft) if lent_to(draft, view)]
    times = [_demotion_s(view, now_s, params, gpus) for view, gpus in lent]
    return min((at_s for at_s in times if at_s is not None), default=None)


def _may_fit_now(draft: Draft) -> bool:
    """Can a job that did not fit in the last decision, whose mark is the memo, fit now? Else only new ones are tried.

    Yes if there is more room, a waiting job was promoted, or a running one was demoted below the first that waits.
    """
    snapshot, demoted_to = draft.snapshot, _FIRST
    for job_id in snapshot.due:
        view = snapshot.jobs[job_id]
        if not view.partitions:
            return True
        demoted_to = max(demoted_to, _class(view))
    if draft.room_mark != snapshot.memo:
        return True
    return (first := snapshot.waiting.first()) is not None and first[0][:2] < demoted_to


def _start(draft: Draft, view: JobView, params: Las) -> bool:
    """Start the job in what is free."""
    why = "starts: least service first"
    enough = view.job.sizes[0] * view.job.demand.gpus <= draft.free_gpus  # Counting is cheaper than a search.
    if not (
        (enough and draft.start(view, why)) or (draft.has_elastic and params.lend and _start_in_lent(draft, view, why))
    ):
        return False
    if params.promote:
        _promote(draft, view, params)
    return True


def _start_in_lent(draft: Draft, view: JobView, why: str) -> bool:
    """Start the job in what is lent to elastic jobs of its class or lower ones, the last of them first."""
    borrowers = [borrower for borrower in elastic_jobs(draft) if _class(borrower) >= _class(view)]
    return bool(start_in_lent(draft, view, why, reversed(borrowers)))


def _preempt(draft: Draft, view: JobView, params: Las) -> bool:
    """Start the job in the place of placed jobs of lower classes: the lowest, as many as it takes and no more."""
    paused, started = f"paused: '{view.job.id}' has had less service", "starts: less service than those that make way"
    if (last := draft.snapshot.placed.last()) is not None and last[0][0] > view.rank[0]:
        paused = f"paused: '{view.job.id}' has a higher priority, or has had less service"
        started = "starts: higher priority, or less service, than those that make way"
    victims = draft.displace(view, draft.placed_behind((*_class(view), inf)), paused, started)
    if params.promote and victims:
        for victim in victims:
            _review_when_starved(draft, victim, params)
        _promote(draft, view, params)
    return bool(victims)


# -- PROMOTE: a starved job returns to the top level, with no service ---------------------------------------------


def _is_starved(view: JobView, now_s: float, params: Las) -> bool:
    return not view.tenancies and now_s - view.since_s >= params.promote * view.ran_s > 0


def _promote(draft: Draft, view: JobView, params: Las) -> None:
    """If the job has starved, its service counts from zero when it starts."""
    now_s = draft.snapshot.now_s
    if _is_starved(view, now_s, params):
        draft.memos[view.job.id] = view.attained_at(now_s)


def _review_starving(draft: Draft, params: Las, try_all: bool) -> None:
    """Review waiting jobs on lower levels for which no review is due: when they starve, they are ranked again.

    Those are jobs that took time to leave, that lost their node, or whose user held and released them. After a loss
    there is more room, so all jobs are tried; otherwise only those that arrived since can be among them.
    """
    snapshot = draft.snapshot
    views = sorted(_demoted(snapshot), key=lambda v: v.number) if try_all else map(snapshot.jobs.get, snapshot.arrived)
    for view in views:
        if view is not None and view.rank[1] and view.review_s is None and not draft.size_of(view):
            _review_when_starved(draft, view, params, _LEAVING_S if view.tenancies else 0.0)


def _demoted(snapshot: Snapshot) -> Iterator[JobView]:
    """Waiting jobs below the top level."""
    jobs = snapshot.jobs.data()
    for entries in snapshot.waiting.buckets().values():
        at = 0
        while at < len(entries):  # one priority after the other
            priority = entries[at][0][0]
            end = bisect_left(entries, ((priority, inf),), at)
            yield from (jobs[entry[-1]] for entry in entries[bisect_left(entries, ((priority, 1),), at, end) : end])
            at = end


def _review_when_starved(draft: Draft, view: JobView, params: Las, least_s: float = 0.0) -> None:
    """Review a job that is to wait at the earliest moment at which it can have starved; one that never ran cannot."""
    if not (view.size or view.ran_s):
        return
    now_s = draft.snapshot.now_s
    since_s = now_s if view.tenancies else view.since_s  # A job that has not left yet does not wait yet.
    at_s = since_s + max(params.promote * view.ran_at(now_s), least_s)
    draft.reviews[view.job.id] = max(now_s, at_s) + _SLACK_GPU_S
