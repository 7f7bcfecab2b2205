"""Dominant resource fairness."""

from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from hocket.model.capacity import Layout, shape_of
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Vector, total
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.owner_shares import Lanes, Shares, displace_richer, grow, placed_s, serve
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


@policy("drf", params=Drf, order=rank, paper="Ghodsi et al., NSDI'11", reads_beliefs=False, reads=())
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
        elif not params.preempt:
            lanes.close_shape(shape_of(view.job))
            return False
        elif not displace_richer(draft, shares, view, params.quantum_s, why, retry_s):
            lanes.close(view.job.owner)
            return False
        shares.add(view.job, view.job.sizes[0])
        return True

    left = serve(lanes, shares.level, give) or draft.paused > 0
    grow(draft, shares, started, lambda v, _size: (shares.level(v.job.owner),), lambda v: draft.reasons[v.job.id])
    if params.preempt:
        draft.memos = dict.fromkeys(draft.reasons, snapshot.now_s)
    if left:
        draft.reasons["*"] = "waits: owners with a smaller dominant share come first, or it does not fit"
    # An owner that has just got something may now have enough to make way for those left: ask again at once.
    again = left and draft.memos
    at_s = snapshot.now_s if again else min(retry_s, default=None)
    wake = Wake(freed_gpus=1 if left or draft.over_quota else None, epoch=False, at_s=at_s)
    return draft.plan(wake)
