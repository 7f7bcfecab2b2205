"""Shortest remaining time first."""

from collections.abc import Iterator
from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.believed import end_s, left_s, watch, watch_again
from hocket.policies.draft import Draft
from hocket.policies.registry import Params, policy


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
    return (end_s(view, now_s) if view.partitions else _needs_s(view, now_s),)


def _needs_s(view: JobView, now_s: float) -> float:
    if not view.partitions and view.memo is not None and "needs_s" in view.memo:
        return float(view.memo["needs_s"])  # as it was told to leave; until it has, it gets a little further
    # At its smallest size, the only one it can be sure of: else two elastic jobs might displace each other for ever.
    return left_s(view, now_s, view.job.sizes[0])


@policy("srtf", params=Srtf, order=rank, reads_usage=False)
def decide(snapshot: Snapshot, params: Srtf) -> Plan:
    """Whoever is believed to be done soonest runs; those with longer left make way, the longest first.

    Jobs of which nothing is believed come last. A job that outlives its belief is reviewed then, and believed to need
    as long again as it has run. Elastic jobs start at the largest size that is free and keep it until they make way.
    """
    draft = Draft(snapshot)
    watch_again(draft)
    waiting = False
    for view in draft.in_line(draft.candidates(), lambda v: (_needs_s(v, snapshot.now_s),)):
        why = "starts: shortest remaining time first" if not view.partitions else "goes on in what is left"
        if not draft.start(view, why):
            paused = f"paused: '{view.job.id}' is believed to be done sooner"
            victims = draft.displace(view, _longer(snapshot, view, params), paused, why)
            for victim in victims:
                needs_s = _needs_s(victim, snapshot.now_s)
                draft.memos[victim.job.id] = {"needs_s": needs_s} if needs_s < inf else None
            if not victims:
                waiting = True
                continue
        watch(draft, view)
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
