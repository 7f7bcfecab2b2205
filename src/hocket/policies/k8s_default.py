"""Kubernetes' default scheduler, as the Reshape paper has it: a random size, and jobs start if they fit."""

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.fixed_sizes import serve
from hocket.policies.registry import Params, policy


@policy("k8s_default", paper="the baseline of Reshape, SC'20", reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, _params: Params) -> Plan:
    """Each job has one of its sizes, drawn at random, and keeps it; in the order of submission, those that fit start.

    A job that does not fit waits and is overtaken by those that do, so large ones may wait long. Sizes are drawn among
    those that an empty cluster has room for.
    """
    draft = Draft(snapshot)
    first = serve(draft, lambda view, sizes: snapshot.rng(view).choice(sizes), "the size it drew")
    if first:
        draft.reasons["*"] = f"waits: '{first}' and others keep the sizes they drew, which do not fit yet"
    return draft.plan(Wake(freed_gpus=1 if first or draft.over_quota else None, epoch=False))
