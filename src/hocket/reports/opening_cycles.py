"""Where a history begins in the middle: cycles that say how things stood then, for reports that read events.

Jobs that were there count as submitted at that moment, with what was left of their work. So their own times before are
not counted, and neither is the work that they had done.
"""

from __future__ import annotations

from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.journal.history import CycleHistory
from hocket.control.ports import Cycle
from hocket.control.restore import begun_at
from hocket.model.event import (
    Event,
    JobAsked,
    JobRequest,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeReserved,
    OwnerSet,
    PastJobsGiven,
    PolicySet,
)
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.validation import LEAST
from hocket.model.view import Hold, JobView
from hocket.policies.registry import bind


def begun_controller(history: CycleHistory) -> Controller | None:
    """The controller at the moment at which a history begins; None: it begins with its first cycle.

    Raises JournalError, UnknownPolicy, PolicyError.
    """
    if history.beginning is None:
        return None
    header = history.header
    policy = bind(header.policy, header.params)
    return begun_at(history.beginning, history.name, policy, MemoryJournal(header), bind)


def opening_cycles(controller: Controller) -> list[Cycle]:
    """Cycles with which an empty cluster comes to this state: nodes, owners, jobs, and where these run."""
    snapshot = controller.snapshot
    now_s = snapshot.now_s
    events: list[Event] = []
    for node in snapshot.nodes.values():
        events.append(NodeJoined(now_s, node.node))
        if not node.up:
            events.append(NodeLost(now_s, node.node.id))
        if node.drained:
            events.append(NodeDrained(now_s, node.node.id, node.cleared))
    events += [OwnerSet(now_s, owner) for owner in snapshot.owners.values()]
    events += [NodeReserved(now_s, reservation) for reservation in snapshot.reservations]
    if snapshot.past_jobs.jobs:
        events.append(PastJobsGiven(now_s, snapshot.past_jobs.jobs))
    if (now := controller.policy_set) is not None:
        events.append(PolicySet(now_s, now.policy, now.params, now.reason))
    views = sorted(snapshot.jobs.values(), key=lambda view: view.number)
    for view in views:
        events.append(JobSubmitted(now_s, _left(view, now_s), view.beliefs, view.costs))
        if view.held is Hold.PAUSED:
            events.append(JobAsked(now_s, view.id, JobRequest.PAUSE))
    placed = Plan(put=tuple(snapshot.partitions.values()))
    running = [JobStarted(now_s, v.id, t.task) for v in views for t in v.tenancies if t.holding is not None]
    return [Cycle(now_s, tuple(events), placed), Cycle(now_s, tuple(running))]


def _left(view: JobView, now_s: float) -> Job:
    """The job as if it were submitted now: its deadline is as far away as it is then."""
    job = view.job
    if job.deadline_s is None:
        return job
    return replace(job, deadline_s=max(LEAST, job.deadline_s - (now_s - view.submitted_s)))
