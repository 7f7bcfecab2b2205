"""First in, first out."""

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.common_params import EverydayParams
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.lent_gpus import elastic_jobs, lend_idle, start_in_lent
from hocket.policies.registry import policy


def rank(view: JobView, _now_s: float, params: EverydayParams) -> tuple[int]:
    """By priority, the highest first; it never changes."""
    return (-view.job.priority if params.priority else 0,)


@policy("fifo", params=EverydayParams, order=rank, reads_beliefs=False, reads_usage=False, reads=("priority",))
def decide(snapshot: Snapshot, params: EverydayParams) -> Plan:
    """Strictly by priority and order of submission: no job overtakes one that waits, however small it is.

    But on nodes that are reserved for their owners, jobs pass those of others, which cannot have these nodes.
    """
    draft = Draft(snapshot)
    wake = Wake(freed_gpus=None, epoch=False)
    line = draft.candidates()
    for view in line:
        if not _start(draft, view, params):
            # Nothing but room for this one job changes anything, or a job of higher priority.
            draft.reasons["*"] = f"waits: '{view.job.id}' is first in line and does not fit yet"
            needs = max(view.job.sizes[0] * view.job.demand.gpus, 1)
            wake = Wake(arrival=params.priority, freed_gpus=needs, epoch=False)
            if view.job.excluded_nodes:
                draft.start_beyond(view, line, lambda v: draft.start(v, "starts: its node is reserved for its owner"))
                wake = Wake(freed_gpus=1, epoch=False)
            break
    if draft.over_quota:  # Those passed over stand before it, and may start when their owner's next job ends.
        wake = Wake(arrival=wake.arrival, freed_gpus=1, epoch=False)
    lending = lend_idle(draft, params)
    return draft.plan(lending.wake(wake))


def _start(draft: Draft, view: JobView, params: EverydayParams) -> bool:
    """Start the job in what is free, or lent to elastic jobs."""
    why = "starts: it is first in line"
    return draft.start(view, why) or (
        params.lend and bool(start_in_lent(draft, view, why, reversed(elastic_jobs(draft))))
    )
