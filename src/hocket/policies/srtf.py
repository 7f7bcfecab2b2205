"""Shortest remaining time first."""

from collections.abc import Iterator
from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.draft import Draft
from hocket.policies.registry import Params, policy

_GRACE_S = 60.0  # one that ends about when it was believed to is not looked at once more


class Srtf(Params, frozen=True):
    hysteresis: Annotated[
        float,
        Meta(ge=0, description="a job makes way if it has longer left than the other by more than this share"),
    ] = 0.1


def rank(view: JobView, now_s: float, _params: Srtf) -> tuple[float]:
    """Waiting jobs by the time they need at their smallest size, placed ones by their believed end.

    What a waiting job needs does not change, nor does the end of one that runs, while what is left of it does. So
    both queues stay in the right order though nobody touches them, and `end - now` is what a placed job has left.
    """
    if view.partitions:
        left = view.remaining_s(now_s, view.size)
        return (inf if left is None else now_s + left,)
    return (_needs_s(view, now_s),)


def _needs_s(view: JobView, now_s: float) -> float:
    # At its smallest size, the only one it can be sure of: else two elastic jobs might displace each other for ever.
    left = view.remaining_s(now_s, view.job.sizes[0])
    return inf if left is None else left


@policy("srtf", params=Srtf, order=rank)
def decide(snapshot: Snapshot, params: Srtf) -> Plan:
    """Whoever is believed to be done soonest runs; those with longer left make way, the longest first.

    Jobs of which nothing is believed come last. A job that outlives its belief is reviewed then, and believed to need
    as long again as it has run. Elastic jobs start at the largest size that is free and keep it until they make way.
    """
    draft = Draft(snapshot)
    for job_id in snapshot.due:
        view = snapshot.jobs[job_id]
        if view.partitions and view.rank[0] < inf:
            draft.reviews[job_id] = view.rank[0] + _GRACE_S
    waiting = False
    for view in draft.in_line(draft.candidates(), lambda v: (_needs_s(v, snapshot.now_s),)):
        why = "starts: shortest remaining time first" if not view.partitions else "goes on in what is left"
        if draft.start(view, why) or draft.displace(
            view, _longer(snapshot, view, params), f"paused: '{view.job.id}' is believed to be done sooner", why
        ):
            left_s = view.remaining_s(snapshot.now_s, draft.size_of(view))
            if left_s is not None:
                draft.reviews[view.job.id] = snapshot.now_s + left_s + _GRACE_S
        else:
            waiting = True
    waiting = waiting or draft.paused > 0
    if waiting:
        draft.reasons["*"] = "waits: those that run are believed to be done sooner, or it does not fit"
    return draft.plan(Wake(freed_gpus=1 if waiting or draft.over_quota else None, epoch=False))


def _longer(snapshot: Snapshot, view: JobView, params: Srtf) -> Iterator[JobView]:
    """The placed jobs that have longer left than this one, by more than the hysteresis; the longest first."""
    enough_s = _needs_s(view, snapshot.now_s) * (1 + params.hysteresis)
    for entry in snapshot.placed.backwards():
        if entry[0][0] - snapshot.now_s <= enough_s or enough_s == inf:
            return
        yield snapshot.jobs[entry[-1]]
