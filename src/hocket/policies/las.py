"""Least attained service, in discrete levels, as Tiresias has it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params, policy

_SLACK_GPU_S = 1e-3  # a review comes at the threshold, give or take a rounding
_LEAVING_S = 1.0  # after that long at the soonest, one who was to leave and is still there is looked at again
# A journal keeps every plan; these are the same in all.
_NOBODY_WAITS, _ROOM = Wake(freed_gpus=None, epoch=False), Wake(freed_gpus=1, epoch=False)


class Las(Params, frozen=True):
    levels_gpu_s: Annotated[
        tuple[float, ...], Meta(description="attained service at which a job sinks by one level")
    ] = (3600.0, 36000.0, 360000.0)
    promote: Annotated[
        float, Meta(ge=0, description="a job that waited this many times as long as it ran rises to the top; 0: never")
    ] = 0.0

    def __post_init__(self) -> None:
        if not all(one < next_one for one, next_one in pairwise((0.0, *self.levels_gpu_s, inf))):
            raise ValueError("levels_gpu_s: each must be above 0 and above the one before it")


def rank(view: JobView, now_s: float, params: Las) -> tuple[int, float]:
    """By level; within a level by first start, as Tiresias keeps them, or submission for those who never ran.

    Its memo says how much service the job was forgiven when it last rose.
    """
    served = view.attained_gpu_s
    if view.gpus:
        served += view.gpus * (now_s - view.since_s)
    if view.memo:
        served -= view.memo
    level = bisect_right(params.levels_gpu_s, served + _SLACK_GPU_S)
    if level and params.promote and _starved(view, now_s, params):
        level = 0
    started = view.started_s
    return level, view.submitted_s if started is None else started


def next_level(view: JobView, now_s: float, params: Las) -> float | None:
    """When the job will sink, on the GPUs that it has."""
    gpus, levels = view.gpus, params.levels_gpu_s
    if not gpus:
        return None
    served = view.attained_gpu_s + gpus * (now_s - view.since_s) - (view.memo or 0.0)
    at = bisect_right(levels, served + _SLACK_GPU_S)
    return None if at == len(levels) else now_s + (levels[at] - served) / gpus


@policy(
    "las", params=Las, order=rank, shifts=next_level, paper="Tiresias, NSDI'19", reads_beliefs=False, reads_usage=False
)
def decide(snapshot: Snapshot, params: Las) -> Plan:
    """Least attained service first, in levels; a job on a higher level takes the place of lower ones.

    Two-dimensional: service is GPUs times seconds. Discretised, so that equals are not swapped for ever. Jobs sink
    when their service passes a threshold, and rise to the top again when they have starved.
    """
    draft = Draft(snapshot)
    jobs, waiting = snapshot.jobs, snapshot.waiting
    sunk = -1  # the lowest level that a placed job has just reached
    risen = False
    for job_id in snapshot.due:
        view = jobs[job_id]
        if view.partitions:
            sunk = max(sunk, view.rank[0])
        else:
            risen = True
    if not waiting.count:
        return draft.plan(_NOBODY_WAITS, memo=_room(draft, 0))
    last = snapshot.placed.last()
    lowest = last[0][0] if last is not None else 0
    # Those who did not fit before fit now only if room was gained, or someone sank below them.
    sunk_below = sunk > 0 and (first := waiting.first()) is not None and first[0][0] < sunk
    anew = sunk_below or risen or _room(draft, 0) != snapshot.memo
    tries = draft.candidates(draft.free_gpus, (lowest,)) if anew else draft.waiting_among(snapshot.arrived)
    displaced = False
    for view in tries:
        level, job = view.rank[0], view.job
        if displaced and level >= lowest:
            break  # It displaces nobody, and stands in one line with those paused for what is left over.
        if job.sizes[0] * job.demand.gpus <= draft.free_gpus and draft.start(view, "starts: least service first"):
            pass
        elif level < lowest and _take_place(draft, view, params):
            displaced = True
        else:
            draft.pass_over(view)
            continue
        if params.promote:
            _forgive(draft, view, params)
    for view in draft.waiting_over_quota() if draft.over_quota else ():
        if view.rank[0] < lowest and _take_place(draft, view, params):
            displaced = True
            if params.promote:
                _forgive(draft, view, params)
    if displaced and (draft.free_gpus or set(map(type, waiting.buckets())) != {int}):
        # Whoever fits, those paused too, gets what was left over.
        for view in draft.with_displaced(draft.candidates(draft.free_gpus), lambda v: v.rank):
            if draft.size_of(view):
                continue  # It started above.
            fits = view.job.sizes[0] * view.job.demand.gpus <= draft.free_gpus
            if not (fits and draft.start(view, "starts: least service first")):
                draft.pass_over(view)
            elif params.promote:
                _forgive(draft, view, params)
    if params.promote:
        _await_starving(draft, params, anew)
    if draft.over_quota:
        return draft.plan(_ROOM)
    more = draft.started - draft.paused
    return draft.plan(_ROOM if waiting.count > more else _NOBODY_WAITS, memo=_room(draft, more))


def _room(draft: Draft, more: int) -> list[int]:
    """What tells that room was gained since: free GPUs, placed jobs (some have none), nodes (likewise)."""
    snapshot = draft.snapshot
    return [draft.free_gpus, snapshot.placed.count + more, snapshot.capacity.up.bit_count()]


def _take_place(draft: Draft, view: JobView, params: Las) -> bool:
    """Pause the lowest jobs below this one, as many as it needs and no more."""
    paused, started = f"paused: '{view.job.id}' has had less service", "starts: less service than those that make way"
    victims = draft.displace(view, _below(draft.snapshot, view), paused, started)
    if params.promote:
        for victim in victims:
            _look_again(draft, victim, params)
    return bool(victims)


def _below(snapshot: Snapshot, view: JobView) -> Iterator[JobView]:
    """Placed jobs on lower levels, the lowest first; equals are not swapped."""
    level, jobs = view.rank[0], snapshot.jobs.data()
    for entry in snapshot.placed.backwards():
        if entry[0][0] <= level:
            return
        yield jobs[entry[-1]]


def _starved(view: JobView, now_s: float, params: Las) -> bool:
    return not view.tenancies and now_s - view.since_s >= params.promote * view.ran_s > 0


def _forgive(draft: Draft, view: JobView, params: Las) -> None:
    """A job that starts after it has starved begins on the top level."""
    now_s = draft.snapshot.now_s
    if _starved(view, now_s, params):
        draft.memos[view.job.id] = view.attained_at(now_s)


def _await_starving(draft: Draft, params: Las, anew: bool) -> None:
    """Have everybody looked at again who waits on a lower level, and whom nobody will look at yet.

    His pause took its time, his run was lost, or his user let him go on.
    """
    snapshot = draft.snapshot
    # With a run that is lost room is gained, so all are tried anew. Else only who came back can be one of them.
    views = sorted(_sunk(snapshot), key=lambda v: v.number) if anew else map(snapshot.jobs.get, snapshot.arrived)
    for view in views:
        if view is not None and view.rank[0] and view.review_s is None and not draft.size_of(view):
            _look_again(draft, view, params, _LEAVING_S if view.tenancies else 0.0)


def _sunk(snapshot: Snapshot) -> Iterator[JobView]:
    """Waiting jobs on lower levels that nobody will look at."""
    jobs = snapshot.jobs.data()
    for entries in snapshot.waiting.buckets().values():
        for entry in entries[bisect_left(entries, ((1,),)) :]:
            view = jobs[entry[-1]]
            if view.review_s is None:
                yield view


def _look_again(draft: Draft, view: JobView, params: Las, least_s: float = 0.0) -> None:
    """Look at a job that is to wait at the soonest when it can have starved."""
    if not (view.size or view.ran_s):
        return  # Who never ran does not starve.
    now_s = draft.snapshot.now_s
    since_s = now_s if view.tenancies else view.since_s  # Who has not left yet does not wait yet.
    at_s = since_s + max(params.promote * view.ran_at(now_s), least_s)
    draft.reviews[view.job.id] = max(now_s, at_s) + _SLACK_GPU_S
