"""Round robin."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import Params, policy


class RoundRobin(Params, frozen=True):
    quantum_s: Annotated[float, Meta(gt=0, description="how long a turn lasts while others wait")] = 1800.0


def rank(view: JobView, now_s: float, _params: RoundRobin) -> tuple[float]:
    """Waiting jobs by when they joined the ring, placed ones by when their turn is over. The memo is that time."""
    at_s = view.submitted_s if view.memo is None else view.memo
    # One that failed in its turn joins the ring then.
    return (at_s if view.partitions else min(at_s, now_s),)


@policy("round_robin", params=RoundRobin, order=rank, reads_beliefs=False, reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: RoundRobin) -> Plan:
    """Each job in its turn; when that is over, it makes way for the first in the ring and joins it at the end.

    A job whose turn is over runs on while no job waits for its place. What is free goes to the first in the ring that
    fits. But once the first in the ring has waited a whole turn for enough room, all that becomes free is
    kept for it: so a large job waits for two turns at most, however many small ones there are.
    """
    draft, now_s = Draft(snapshot), snapshot.now_s
    first, since_s = None, now_s
    for view in draft.with_displaced(draft.candidates(), lambda _view: (now_s,)):
        job_id = view.job.id
        started = draft.start(view, "goes on in what is left" if view.partitions else "starts: it is its turn")
        if started:
            _begin_turn(draft, view, params)
        elif first is None and not _take_turn(draft, view, params):
            first = job_id
            if snapshot.memo is not None and snapshot.memo["first"] == first:
                since_s = snapshot.memo["since_s"]
            draft.reasons["*"] = f"waits: '{first}' is first in the ring, when enough turns are over"
            if since_s + params.quantum_s <= now_s:
                draft.reasons["*"] = f"waits: '{first}' has waited a whole turn, all that is free is kept for it"
                break
    for view in draft.waiting_over_quota():
        _take_turn(draft, view, params)
    if first is None and not (draft.paused or draft.over_quota):
        return draft.plan(Wake(freed_gpus=None, epoch=False))
    wake = Wake(freed_gpus=1, epoch=False, at_s=_next_turn_s(draft, params))
    return draft.plan(wake, memo=None if first is None else {"first": first, "since_s": since_s})


def _take_turn(draft: Draft, view: JobView, params: RoundRobin) -> bool:
    """Start the job in the place of others whose turn is over."""
    paused = f"paused: its turn is over, '{view.job.id}' is next"
    victims = draft.displace(view, _over(draft.snapshot), paused, "starts: it is its turn")
    for victim in victims:
        draft.memos[victim.job.id] = draft.snapshot.now_s
    if victims:
        _begin_turn(draft, view, params)
    return bool(victims)


def _begin_turn(draft: Draft, view: JobView, params: RoundRobin) -> None:
    costs = view.costs
    draft.memos[view.job.id] = draft.snapshot.now_s + params.quantum_s + costs.prepare_s + costs.start_s


def _over(snapshot: Snapshot) -> Iterator[JobView]:
    """The placed jobs whose turn is over, the longest first."""
    for entry in snapshot.placed:
        if entry[0][0] > snapshot.now_s:
            return
        yield snapshot.jobs[entry[-1]]


def _next_turn_s(draft: Draft, params: RoundRobin) -> float | None:
    """When the next turn is over; no later than those that start now."""
    now_s, next_s = draft.snapshot.now_s, []
    for entries in draft.snapshot.placed.buckets().values():
        at = bisect_right(entries, now_s, key=lambda entry: entry[0][0])
        next_s += [float(entry[0][0]) for entry in entries[at : at + 1]]
    if next_s:
        return min(*next_s, now_s + params.quantum_s)
    return now_s + params.quantum_s if draft.started else None
