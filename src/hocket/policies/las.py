"""Least attained service, in discrete levels, as Tiresias has it."""

from bisect import bisect_right
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.draft import Draft
from hocket.policies.registry import Params, policy

_SLACK_GPU_S = 1e-3  # a review comes at the threshold, give or take a rounding


class Las(Params):
    levels_gpu_s: Annotated[
        tuple[float, ...], Meta(description="attained service at which a job sinks by one level")
    ] = (3250.0, 7200.0, 18000.0)
    promote: Annotated[
        float, Meta(ge=0, description="a job that waited this many times as long as it ran rises to the top; 0: never")
    ] = 8.0


def level(view: JobView, now_s: float, params: Las) -> int:
    """How far down the job is. Its memo says how much service it was forgiven when it last rose."""
    if _starved(view, now_s, params):
        return 0
    served = view.attained_at(now_s) - (view.memo or 0.0)
    return bisect_right(params.levels_gpu_s, served + _SLACK_GPU_S)


def rank(view: JobView, now_s: float, params: Las) -> tuple[int, float]:
    """By level; within a level by first start, as Tiresias keeps them, or submission for those who never ran."""
    started = view.started_s
    return level(view, now_s, params), view.submitted_s if started is None else started


@policy("las", params=Las, order=rank, paper="Tiresias, NSDI'19")
def decide(snapshot: Snapshot, params: Las) -> Plan:
    """Least attained service first, in levels; a job on a higher level takes the place of lower ones.

    Two-dimensional: service is GPUs times seconds. Discretised, so that equals are not swapped for ever. Jobs sink
    when their service passes a threshold, and rise to the top again when they have starved.
    """
    draft = Draft(snapshot)
    now_s = snapshot.now_s
    for job_id in snapshot.due:
        view = snapshot.jobs[job_id]
        if view.partitions:
            _review_at_next_level(draft, view, params)
    waiting = False
    for view in draft.candidates():
        if not draft.start(view, "starts: least service first") and not _take_place(draft, view, params):
            waiting = True
            continue
        if _starved(view, now_s, params):
            draft.memos[view.job.id] = view.attained_at(now_s)
        _review_at_next_level(draft, view, params)
    return draft.plan(Wake(freed_gpus=1 if waiting or draft.over_quota else None, epoch=False))


def _take_place(draft: Draft, view: JobView, params: Las) -> bool:
    """Pause the lowest jobs below this one, as many as it needs and no more."""
    snapshot, job, mine = draft.snapshot, view.job, view.rank[0]
    missing = job.sizes[0] * job.demand.gpus - draft.free_gpus
    victims: list[tuple[JobView, int]] = []
    for entry in snapshot.placed.backwards():
        if missing <= 0 or entry[0][0] <= mine:
            break  # Enough, or none left below: equals are not swapped.
        victim = snapshot.jobs[entry[-1]]
        if gpus := draft.gpus_of(victim):
            victims.append((victim, gpus))
            missing -= gpus
    if missing > 0 or not victims:
        return False
    for victim, gpus in reversed(victims[:]):
        if missing + gpus <= 0:  # The others suffice: those highest up stay.
            victims.remove((victim, gpus))
            missing += gpus
    for victim, _gpus in victims:
        draft.pause(victim, f"paused: '{job.id}' has had less service")
        if params.promote and victim.size:
            starved_s = params.promote * victim.ran_at(snapshot.now_s)
            draft.reviews[victim.job.id] = snapshot.now_s + starved_s + _SLACK_GPU_S
    return draft.start(view, f"starts: less service than {len(victims)} that make way")


def _review_at_next_level(draft: Draft, view: JobView, params: Las) -> None:
    """Ask for a look at the moment in which it will sink."""
    now_s = draft.snapshot.now_s
    served = view.attained_at(now_s) - draft.memos.get(view.job.id, view.memo or 0.0)
    at = bisect_right(params.levels_gpu_s, served + _SLACK_GPU_S)
    gpus = draft.gpus_of(view)
    if at < len(params.levels_gpu_s) and gpus:
        draft.reviews[view.job.id] = now_s + (params.levels_gpu_s[at] - served) / gpus


def _starved(view: JobView, now_s: float, params: Las) -> bool:
    return bool(params.promote) and not view.size and now_s - view.since_s >= params.promote * view.ran_s > 0
