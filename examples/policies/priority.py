"""Highest priority first, preemptive: a waiting job takes the place of running jobs of lower priority.

Try it with `HOCKET_POLICIES=examples/policies hocket compare demo fifo priority priority:margin=3`.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from hocket.model import JobView, Plan, Snapshot, Wake
from hocket.policies import Draft, Params, policy


class Priority(Params, frozen=True):
    margin: Annotated[int, Meta(ge=1, description="a job is paused for one whose priority is this much higher")] = 1


def rank(view: JobView, _now_s: float, _params: Priority) -> tuple[int]:
    """Both queues are sorted by this: the highest priority first, then by submission."""
    return (-view.job.priority,)


@policy("priority", params=Priority, order=rank, reads_beliefs=False, reads_usage=False, reads=("priority",))
def decide(snapshot: Snapshot, params: Priority) -> Plan:
    """The highest priority runs first; running jobs of lower priority make way, the lowest and latest first."""
    draft = Draft(snapshot)
    waits = False
    # Jobs over their owner's quota may displace that owner's own; displaced jobs come again and may fit elsewhere.
    for view in draft.with_displaced(draft.candidates(over_quota=True), lambda v: v.rank):
        started = draft.start(view, "starts: no job of a higher priority needs its place")
        if not started:
            paused = f"paused: '{view.id}' has a higher priority"
            started = bool(draft.displace(view, _lower(snapshot, view, params), paused, "starts: highest priority"))
        waits = waits or not started
    if waits or draft.paused:
        draft.reasons["*"] = "waits: running jobs have a higher priority, or it does not fit"
    return draft.plan(Wake(freed_gpus=1 if waits or draft.paused or draft.over_quota else None, epoch=False))


def _lower(snapshot: Snapshot, view: JobView, params: Priority) -> Iterator[JobView]:
    """Placed jobs of a lower priority, the lowest and latest first."""
    for _rank, _number, job_id in snapshot.placed.backwards():
        placed = snapshot.jobs[job_id]
        if view.job.priority - placed.job.priority < params.margin:
            return
        yield placed
