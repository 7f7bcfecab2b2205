"""Borg's queue, as TensorFlow's jobs meet it: by priority, in it owners in turn, and equal shares for elastic jobs."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import NO_USE, Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.owner_shares import Lanes
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
    "borg_fair", params=BorgFair, order=rank, paper="Borg, EuroSys'15, as TensorFlow runs on it", reads_beliefs=False
)
def decide(snapshot: Snapshot, params: BorgFair) -> Plan:
    """The highest priority first; in it the owner with the fewest jobs gets its next one, at an equal share of GPUs.

    A job that waits takes the place of running ones of lower priority, the lowest and latest first. Within a priority
    nobody is paused. An elastic job gets no more than its weighted share of all GPUs among all jobs that are there, and
    at least its smallest size; it is never resized.
    """
    draft = Draft(snapshot)
    lanes = Lanes(draft)
    turns = {owner: (snapshot.usage.get(owner) or NO_USE).jobs for owner in lanes.owners()}
    line = [(-view.job.priority, turns[o], view.number, o) for o in turns if (view := lanes.head(o)) is not None]
    heapify(line)
    share: float | None = None  # GPUs for a unit of weight; most jobs are of one size, and nobody asks
    waits = False
    while line:
        _priority, _turn, _number, owner = heappop(line)
        view = lanes.head(owner)
        if view is None:
            continue
        if share is None and len(view.job.sizes) > 1:
            share = _gpus(snapshot) / max(_weight(snapshot), 1e-9)
        if _give(draft, view, share or 0.0, params):
            turns[owner] += 1
            lanes.advance(owner)
        else:
            waits = True
            lanes.close(owner)
        if (view := lanes.head(owner)) is not None:
            heappush(line, (-view.job.priority, turns[owner], view.number, owner))
    for view in draft.waiting_over_quota() if params.preempt else ():
        _displace(draft, view)
    if waits or draft.paused:
        draft.reasons["*"] = "waits: those that run have its priority or more, or it does not fit"
    at_s = snapshot.now_s if draft.paused else None  # Who had to go, or waits, may fit into what is left over.
    return draft.plan(Wake(freed_gpus=1 if waits or draft.paused or draft.over_quota else None, epoch=False, at_s=at_s))


def _gpus(snapshot: Snapshot) -> int:
    return sum(view.node.gpus for view in snapshot.nodes.values() if view.up)


def _weight(snapshot: Snapshot) -> float:
    """Of all jobs that wait or have a place."""
    jobs = snapshot.jobs.data()
    return sum(jobs[entry[-1]].job.weight for queue in (snapshot.waiting, snapshot.placed) for entry in queue)


def _give(draft: Draft, view: JobView, share: float, params: BorgFair) -> bool:
    """Start the job at its share, or at as much of it as is free, or in the place of others."""
    job = view.job
    fair = [n for n in job.sizes if n * job.demand.gpus <= share * job.weight] or [job.sizes[0]]
    for size in reversed(fair):
        if draft.start(view, f"starts: it is the turn of '{job.owner}'", size):
            return True
    return params.preempt and _displace(draft, view)


def _displace(draft: Draft, view: JobView) -> bool:
    paused = f"paused: '{view.job.id}' has a higher priority"
    started = "starts: its priority is higher than that of others"
    return bool(draft.displace(view, _lower(draft.snapshot, view), paused, started))


def _lower(snapshot: Snapshot, view: JobView) -> Iterator[JobView]:
    """The placed jobs of a lower priority, the lowest and latest first."""
    for entry in snapshot.placed.backwards():
        if entry[0][0] <= -view.job.priority:
            return
        yield snapshot.jobs[entry[-1]]
