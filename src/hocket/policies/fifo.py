"""First in, first out."""

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params, policy


@policy("fifo", reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, _params: Params) -> Plan:
    """Strictly in order of submission: no job overtakes one that waits, however small it is."""
    draft = Draft(snapshot)
    for view in draft.candidates():
        if not draft.start(view, "starts: it is first in line"):
            # Nothing but room for this one job changes anything.
            draft.reasons["*"] = f"waits: '{view.job.id}' is first in line and does not fit yet"
            needs = view.job.sizes[0] * view.job.demand.gpus
            if draft.over_quota:
                needs = 1  # Those passed over stand before it, and may start when their owner's next job ends.
            return draft.plan(Wake(arrival=False, freed_gpus=max(needs, 1), epoch=False))
    return draft.plan(Wake(freed_gpus=1 if draft.over_quota else None, epoch=False))
