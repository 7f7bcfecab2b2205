"""Earliest deadline first."""

from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.criterion import Duration, RunTime, limit_of
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.common_params import ElasticParams
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.lent_gpus import elastic_jobs, lend_idle, start_in_lent
from hocket.policies.registry import policy


class Edf(ElasticParams, frozen=True):
    preempt: Annotated[bool, Meta(description="whether running jobs make way for earlier deadlines")] = True


def deadline_s(view: JobView) -> float:
    """When the job must be done: its own deadline or its criterion's, whichever comes first; infinite for none."""
    job, limit = view.job, None
    if job.criterion is not None and not isinstance(job.criterion, RunTime):
        limit = limit_of(job.criterion)
    within_s = inf if job.deadline_s is None else job.deadline_s
    if isinstance(limit, Duration):
        within_s = min(within_s, limit.time_s)
    return view.submitted_s + within_s


def rank(view: JobView, _now_s: float, _params: Edf) -> tuple[float]:
    """By deadline; it never changes."""
    return (deadline_s(view),)


@policy(
    "edf",
    params=Edf,
    order=rank,
    paper="Liu and Layland, JACM'73",
    reads_beliefs=False,
    reads_usage=False,
    reads=("deadline_s",),
)
def decide(snapshot: Snapshot, params: Edf) -> Plan:
    """The job with the earliest deadline runs first; running jobs with later ones make way, the latest first.

    Deadlines count from submission; one of a criterion ("within 2h") counts too. Jobs without any come last, in the
    order of submission, and displace none. A deadline that has passed is still the earliest: no job is given up.
    """
    draft = Draft(snapshot)
    waiting = False
    for view in draft.with_displaced(draft.candidates(over_quota=True), lambda v: v.rank):
        why = "goes on in what is left" if view.partitions else "starts: no earlier deadline needs its place"
        if draft.start(view, why) or (params.lend and _start_in_lent(draft, view, why)):
            continue
        paused = f"paused: '{view.job.id}' has an earlier deadline"
        if not (params.preempt and draft.displace(view, draft.placed_behind(view.rank), paused, why)):
            waiting = True
    waiting = waiting or draft.paused > 0
    if waiting:
        draft.reasons["*"] = "waits: those that run have earlier deadlines, or it does not fit"
    lending = lend_idle(draft, params)
    return draft.plan(lending.wake(Wake(freed_gpus=1 if waiting or draft.over_quota else None, epoch=False)))


def _start_in_lent(draft: Draft, view: JobView, why: str) -> bool:
    """Start the job in what is lent to elastic jobs with later deadlines, the latest first."""
    borrowers = [borrower for borrower in elastic_jobs(draft) if borrower.rank > view.rank]
    return bool(start_in_lent(draft, view, why, reversed(borrowers)))
