"""EASY backfilling."""

from collections.abc import Iterator
from heapq import merge
from math import inf
from typing import Annotated

from msgspec import Meta, Struct

from hocket.model.capacity import Capacity, Shape, shape_of
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Slice
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.believed import depends_on_place, end_s, left_s, pace_in, watch, watch_again
from hocket.policies.kit.decision_cache import borrow
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.waiting_by_run_time import Brief
from hocket.policies.registry import Params, policy

_FEW = 200  # jobs of a shape that are put in line one by one
_ROUNDING_S = 1e-3


class Backfill(Params, frozen=True):
    depth: Annotated[
        int, Meta(ge=0, description="give up after so many that may not overtake the first in line; 0: never")
    ] = 0


class Reservation(Struct):
    """When and where the first in line is believed to start, and what is free then beside it."""

    at_s: float
    nodes: tuple[str, ...]
    spare: Capacity
    crowded: set[object]  # shapes and sizes that do not fit beside it


def rank(view: JobView, now_s: float, _params: Backfill) -> tuple[float, ...]:
    """Waiting jobs stand in the order of submission, placed ones in the order of their believed ends."""
    return (end_s(view, now_s),) if view.partitions else ()


@policy("backfill", params=Backfill, order=rank, paper="EASY, Lifka, JSSPP'95", reads_usage=False)
def decide(snapshot: Snapshot, params: Backfill) -> Plan:
    """In order of submission, but later jobs may start early where they do not delay the first in line.

    The first that does not fit has a reservation: the places in which, by the believed run times of what runs now,
    it can start soonest. A later job starts if it is believed to be done by then, or fits beside the reservation. A
    job without a belief counts as endless. Jobs that outlive a belief are believed to need as long again.
    """
    draft, now_s = Draft(snapshot), snapshot.now_s
    watch_again(draft)
    head: JobView | None = None
    reservation: Reservation | None = None
    started: list[tuple[float, str]] = []  # by this draft: (believed end, job)
    passed_over = 0
    thinned: set[Shape] = set()  # of which only those are looked at that are brief, unless they are many
    for view in draft.with_displaced(draft.candidates(), lambda v: v.rank):
        if params.depth and passed_over == params.depth:
            break
        if head is None:
            if draft.start(view, "starts: it is first in line"):
                started.append((watch(draft, view, _switch_s(view)), view.job.id))
            else:
                head = view
            continue
        if draft.capacity.place(view.job, view.job.sizes[0]) is None:
            draft.pass_over(view)
            passed_over += 1
            continue
        if reservation is None:  # Not before it is asked for: mostly nothing is free anyway.
            reservation = _reserve(draft, head, started)
        for size in reversed(view.job.sizes):
            done_s = now_s + _switch_s(view) + left_s(view, now_s, size, _pace_at(draft, view, size))
            if done_s <= reservation.at_s and done_s < inf:
                begun = draft.start(view, f"starts: it is done before '{head.job.id}' can start", size)
            else:
                begun = _beside(draft, view, size, reservation, f"starts: it is not in the way of '{head.job.id}'")
            if begun:
                watch(draft, view, _switch_s(view))
                break
        else:
            passed_over += 1
            shape = shape_of(view.job)
            if params.depth or shape in thinned:
                continue
            if all((shape, size) in reservation.crowded for size in view.job.sizes):
                thinned.add(shape)
                _only_brief(draft, view, reservation.at_s - now_s)
    if head is not None:
        draft.reasons["*"] = f"waits: '{head.job.id}' is first in line and must not be delayed"
    return draft.plan(Wake(freed_gpus=1 if head is not None or draft.over_quota else None, epoch=False))


def _only_brief(draft: Draft, view: JobView, within_s: float) -> None:
    """Of those behind a job, and of its shape, let only those stand in line that need no longer than that.

    To find them one by one would take as long as the line is; so would it to put them there, if they are many.
    """
    snapshot = draft.snapshot
    with borrow((Brief, snapshot.capacity.layout), Brief) as brief:
        brief.follow(snapshot)
        found = brief.within(shape_of(view.job), within_s + _ROUNDING_S, _FEW)
    if found is not None:
        draft.pass_over(view)
        for _needs_s, number, job_id in found:
            if number > view.number:
                draft.requeue(snapshot.jobs[job_id])


def _switch_s(view: JobView) -> float:
    return view.costs.prepare_s + view.costs.start_s


def _pace_at(draft: Draft, view: JobView, size: int) -> float:
    """What the places that the job would get at a size make of its believed speed."""
    if not depends_on_place(view):
        return 1.0
    nodes = draft.capacity.layout.nodes
    return pace_in(view, [nodes[at] for at, _replicas in draft.capacity.place(view.job, size) or ()])


def _reserve(draft: Draft, head: JobView, started: list[tuple[float, str]]) -> Reservation:
    """Let what is placed end in the believed order until the first in line fits."""
    snapshot, job, size = draft.snapshot, head.job, head.job.sizes[0]
    capacity, needs = draft.capacity, size * job.demand.gpus
    for then_s, job_id in merge(_ends(snapshot), sorted(started)):
        if then_s == inf:
            break
        capacity = capacity.give(draft.slices_of(snapshot.jobs[job_id]))
        if capacity.gpus >= needs and (places := capacity.place(job, size)) is not None:
            slices = capacity.slices(job, places)
            capacity = capacity.take(slices)
            return Reservation(max(then_s, snapshot.now_s), tuple(s.node for s in slices), capacity, set())
    return Reservation(inf, (), capacity, set())


def _ends(snapshot: Snapshot) -> Iterator[tuple[float, str]]:
    return ((entry[0][0], entry[-1]) for entry in snapshot.placed)


def _beside(draft: Draft, view: JobView, size: int, reservation: Reservation, why: str) -> bool:
    """Start the job where it may stay for good: in what is free now, less what the first in line will need of it."""
    shape = (shape_of(view.job), size)
    if reservation.at_s == inf or shape in reservation.crowded:
        return False
    whole = draft.capacity
    held = [Slice.of_free(n, whole[n]).minus(Slice.of_free(n, reservation.spare[n])) for n in reservation.nodes]
    draft.capacity = whole.take(held)
    if draft.capacity.place(view.job, size) is None:
        reservation.crowded.add(shape)
        draft.capacity = whole
        return False
    if not draft.start(view, why, size):  # its owner's quota
        draft.capacity = whole
        return False
    draft.capacity = draft.capacity.give(held)
    reservation.spare = reservation.spare.take(draft.slices_of(view))
    return True
