"""Borg's queue, as TensorFlow's jobs meet it: by priority, in it owners in turn, and equal shares for elastic jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import NO_USE, Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.owner_shares import Lanes, serve
from hocket.policies.registry import Params, policy


class BorgFair(Params, frozen=True):
    preempt: Annotated[bool, Meta(description="whether running jobs make way for those of a higher priority")] = True


def rank(view: JobView, _now_s: float, _params: BorgFair) -> tuple[object, ...]:
    """Waiting jobs owner by owner, by priority and submission; placed ones by priority and start."""
    job = view.job
    if view.partitions:
        return -job.priority, view.submitted_s if view.started_s is None else view.started_s
    return job.owner, -job.priority, view.submitted_s


@policy(
    "borg_fair",
    params=BorgFair,
    order=rank,
    paper="Borg, EuroSys'15, as TensorFlow runs on it",
    reads_beliefs=False,
    reads=("priority", "weight"),
)
def decide(snapshot: Snapshot, params: BorgFair) -> Plan:
    """The highest priority first; in it the owner with the fewest jobs gets its next one, at an equal share of GPUs.

    A job that waits takes the place of running ones of lower priority, the lowest and latest first. Within a priority
    no job is paused. An elastic job gets no more than its weighted share of all GPUs among all jobs that are there, and
    at least its smallest size; it is never resized.
    """
    draft = Draft(snapshot)
    lanes = Lanes(draft, over_quota=params.preempt)
    jobs_of = {owner: (snapshot.usage.get(owner) or NO_USE).jobs for owner in lanes.owners()}
    share = cache(lambda: _share(snapshot))  # Not before it is needed: most jobs are of one size.

    def turn(owner: str) -> tuple[int, ...]:
        view = lanes.head(owner)
        return () if view is None else (-view.job.priority, jobs_of[owner], view.number)

    def give(view: JobView) -> bool:
        started = _start(draft, view, share) or (params.preempt and _displace(draft, view))
        if started:
            jobs_of[view.job.owner] += 1
        else:
            lanes.close(view.job.owner)
        return started

    waits = serve(lanes, turn, give)
    if waits or draft.paused:
        draft.reasons["*"] = "waits: those that run have its priority or more, or it does not fit"
    at_s = snapshot.now_s if draft.paused else None  # Paused and waiting jobs may fit into what is left over.
    return draft.plan(Wake(freed_gpus=1 if waits or draft.paused or draft.over_quota else None, epoch=False, at_s=at_s))


def _share(snapshot: Snapshot) -> float:
    """GPUs for a unit of weight of all jobs that wait or have a place."""
    jobs = snapshot.jobs.data()
    weight = sum(jobs[entry[-1]].job.weight for queue in (snapshot.waiting, snapshot.placed) for entry in queue)
    return sum(view.node.gpus for view in snapshot.nodes.values() if view.up) / max(weight, 1e-9)


def _start(draft: Draft, view: JobView, share: Callable[[], float]) -> bool:
    """Start the job at its share, or at as much of it as is free."""
    job, fair = view.job, view.job.sizes
    if len(fair) > 1:
        fair = tuple(n for n in fair if n * job.demand.gpus <= share() * job.weight) or fair[:1]
    return any(draft.start(view, f"starts: it is the turn of '{job.owner}'", size) for size in reversed(fair))


def _displace(draft: Draft, view: JobView) -> bool:
    """Start the job in the place of others of a lower priority, the lowest and latest first."""
    paused = f"paused: '{view.job.id}' has a higher priority"
    started = "starts: its priority is higher than that of others"
    return bool(draft.displace(view, draft.placed_behind((-view.job.priority, inf)), paused, started))
