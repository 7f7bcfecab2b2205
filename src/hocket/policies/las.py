"""Least attained service, in discrete levels, as Tiresias has it."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.draft import Draft
from hocket.policies.registry import Params, policy

_SLACK_GPU_S = 1e-3  # a review comes at the threshold, give or take a rounding
# A journal keeps every plan; these are the same in all.
_NOBODY_WAITS, _ROOM = Wake(freed_gpus=None, epoch=False), Wake(freed_gpus=1, epoch=False)


class Las(Params, frozen=True):
    levels_gpu_s: Annotated[
        tuple[float, ...], Meta(description="attained service at which a job sinks by one level")
    ] = (3600.0, 36000.0, 360000.0)
    promote: Annotated[
        float, Meta(ge=0, description="a job that waited this many times as long as it ran rises to the top; 0: never")
    ] = 0.0


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
    jobs, waiting, now_s = snapshot.jobs, snapshot.waiting, snapshot.now_s
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
    if sunk_below or risen or _room(draft, 0) != snapshot.memo:
        tries = draft.candidates(draft.free_gpus, (lowest,))
    else:
        tries = draft.only(snapshot.arrived)
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
        if params.promote and _starved(view, now_s, params):
            draft.memos[job.id] = view.attained_at(now_s)
    if displaced and (draft.free_gpus or set(map(type, waiting.buckets())) != {int}):
        # Whoever fits, those paused too, gets what was left over.
        for view in draft.in_line(draft.candidates(draft.free_gpus), lambda v: v.rank):
            if draft.size_of(view):
                continue  # It started above.
            fits = view.job.sizes[0] * view.job.demand.gpus <= draft.free_gpus
            if not (fits and draft.start(view, "starts: least service first")):
                draft.pass_over(view)
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
    now_s = draft.snapshot.now_s
    paused, started = f"paused: '{view.job.id}' has had less service", "starts: less service than those that make way"
    victims = draft.displace(view, _below(draft.snapshot, view), paused, started)
    if params.promote:
        for victim in victims:
            if victim.size:
                starved_s = params.promote * victim.ran_at(now_s)
                draft.reviews[victim.job.id] = now_s + starved_s + _SLACK_GPU_S
    return bool(victims)


def _below(snapshot: Snapshot, view: JobView) -> Iterator[JobView]:
    """Placed jobs on lower levels, the lowest first; equals are not swapped."""
    level, jobs = view.rank[0], snapshot.jobs.data()
    for entry in snapshot.placed.backwards():
        if entry[0][0] <= level:
            return
        yield jobs[entry[-1]]


def _starved(view: JobView, now_s: float, params: Las) -> bool:
    return not view.size and now_s - view.since_s >= params.promote * view.ran_s > 0
