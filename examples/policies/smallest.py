"""Smallest first, with patience: a whole policy in one file.

Try it with `HOCKET_POLICIES=examples/policies hocket compare demo fifo smallest`.
"""

from typing import Annotated

from msgspec import Meta

from hocket.model import JobView, Plan, Snapshot, Wake
from hocket.policies import Draft, Params, policy


class Smallest(Params, frozen=True):
    patience_s: Annotated[float, Meta(gt=0, description="no job overtakes one that has waited this long")] = 7200.0


def rank(view: JobView, now_s: float, params: Smallest) -> tuple[bool, int]:
    """Jobs whose patience is over first, in the order of submission; then by the GPUs they need at least."""
    patient = view.waited_at(now_s) < params.patience_s - 1e-3  # A review comes in time, give or take a rounding.
    return patient, view.job.sizes[0] * view.job.demand.gpus if patient else 0


@policy("smallest", params=Smallest, order=rank, reads_beliefs=False, reads=())
def decide(snapshot: Snapshot, params: Smallest) -> Plan:
    """Jobs that need the fewest GPUs go first, but none waits behind newcomers for ever."""
    draft = Draft(snapshot)
    waiting = False
    for view in draft.candidates():  # waiting jobs, by rank; of a shape that did not fit, no more come
        if draft.start(view, "starts: no smaller job waits"):
            continue
        waiting = True
        draft.reasons["*"] = "waits: there is no room for it"
        if not view.rank[0]:
            draft.reasons["*"] = f"waits: '{view.id}' has waited long enough, and all that is free is kept for it"
            break
    for view in draft.waiting_among(snapshot.arrived):
        left_s = params.patience_s - view.waited_at(snapshot.now_s)
        if left_s > 0 and not draft.size_of(view):  # It waits: rank it anew when its patience is over.
            draft.reviews[view.id] = snapshot.now_s + left_s
    return draft.plan(Wake(freed_gpus=1 if waiting or draft.over_quota else None, epoch=False))
