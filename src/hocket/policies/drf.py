"""Dominant resource fairness."""

from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Annotated

from msgspec import Meta

from hocket.model.capacity import Layout, shape_of
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Vector, total
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.owner_shares import Lanes, Shares, displace_richer, placed_s, serve
from hocket.policies.registry import Params, policy


class Drf(Params, frozen=True):
    preempt: Annotated[
        bool, Meta(description="whether running jobs of an owner with more make way for one with less")
    ] = False
    quantum_s: Annotated[float, Meta(ge=0, description="how long a job runs before it must make way")] = 600.0


def rank(view: JobView, _now_s: float, _params: Drf) -> tuple[str, float]:
    """Owner by owner: waiting jobs by submission, placed ones by their start."""
    return view.job.owner, placed_s(view) if view.partitions else view.submitted_s


@lru_cache(maxsize=16)
def _totals(layout: Layout, up: int) -> Vector:
    """What the nodes that are up have, by resource."""
    return total(node.vector for i, node in enumerate(layout.nodes) if up >> i & 1)


@policy("drf", params=Drf, order=rank, paper="Ghodsi et al., NSDI'11", reads_beliefs=False)
def decide(snapshot: Snapshot, params: Drf) -> Plan:
    """The owner with the least dominant share, over its weight, gets its next job; again, while something fits.

    An owner's dominant share is its largest share of any one resource: GPUs, cores, memory or network. Jobs start
    at their smallest size, and those that started now then grow while there is room, a size at a time, least share
    first.
    """
    draft = Draft(snapshot)
    shares = Shares(snapshot, _totals(snapshot.capacity.layout, snapshot.capacity.up))
    lanes = Lanes(draft)
    started: list[JobView] = []
    retry_s: list[float] = []

    def give(view: JobView) -> bool:
        why = f"starts: '{view.job.owner}' has the least dominant share"
        if draft.start(view, why, view.job.sizes[0]):
            started.append(view)
            return True
        if params.preempt and displace_richer(draft, shares, view, params.quantum_s, why, retry_s):
            return True
        if params.preempt:
            lanes.close(view.job.owner)
        else:
            lanes.close_shape(shape_of(view.job))
        return False

    left = serve(shares, lanes, give) or draft.paused > 0
    _grow(draft, shares, started)
    if params.preempt:
        draft.memos = dict.fromkeys(draft.reasons, snapshot.now_s)
    if left:
        draft.reasons["*"] = "waits: owners with a smaller dominant share come first, or it does not fit"
    # Who has just got something may now have enough to make way for those left: ask again at once.
    again = left and draft.memos
    at_s = snapshot.now_s if again else min(retry_s, default=None)
    wake = Wake(freed_gpus=1 if left or draft.over_quota else None, epoch=False, at_s=at_s)
    return draft.plan(wake)


def _grow(draft: Draft, shares: Shares, started: list[JobView]) -> None:
    """Give what is left to these jobs, a size at a time, to the owner with the least; of one owner's to the first."""
    line = [(shares.level(v.job.owner), v.number, v, 1) for v in started if len(v.job.sizes) > 1]
    heapify(line)
    while line:
        level, number, view, step = heappop(line)
        job = view.job
        if (now := shares.level(job.owner)) != level:
            heappush(line, (now, number, view, step))  # Its owner has more than when it was put there.
        elif draft.resize(view, job.sizes[step], draft.reasons[job.id]):
            shares.add(job, job.sizes[step] - job.sizes[step - 1])
            if step + 1 < len(job.sizes):
                heappush(line, (shares.level(job.owner), number, view, step + 1))
