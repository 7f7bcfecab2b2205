"""EASY backfilling."""

from collections.abc import Iterator
from heapq import merge
from math import inf
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from hocket.model.capacity import Capacity, Shape, shape_of
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Slice, gpu_ids
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.common_params import EverydayParams
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.lent_gpus import NOTHING_LENT, elastic_jobs, lend_idle, start_in_lent
from hocket.policies.kit.remaining_time import (
    cold_start_s,
    depends_on_place,
    fix_end,
    fix_ends_of_reviewed,
    fixed_end_s,
    left_s,
    pace_in,
    restart_s,
)
from hocket.policies.kit.waiting_by_run_time import keep_brief_in_line
from hocket.policies.registry import policy


class Backfill(EverydayParams, frozen=True):
    depth: Annotated[
        int, Meta(ge=0, description="give up after so many that may not overtake the first in line; 0: never")
    ] = 0


class Reservation(Struct):
    """When and where the first in line is believed to start, and what is free then beside it."""

    head: JobView
    at_s: float
    nodes: tuple[str, ...]
    spare: Capacity
    crowded: set[tuple[Shape, int]]  # shapes and sizes that do not fit beside it


def rank(view: JobView, now_s: float, params: Backfill) -> tuple[float]:
    """Waiting jobs are sorted by priority and submission, placed ones by their believed ends."""
    if view.partitions:
        return (fixed_end_s(view, now_s),)
    return (-view.job.priority if params.priority else 0,)


@policy("backfill", params=Backfill, order=rank, paper="EASY, Lifka, JSSPP'95", reads_usage=False, reads=("priority",))
def decide(snapshot: Snapshot, params: Backfill) -> Plan:
    """In order of submission, but later jobs may start early where they do not delay the first in line.

    The first that does not fit has a reservation: the places in which, by the believed run times of what runs now,
    it can start soonest. A later job starts if it is believed to be done by then, or fits beside the reservation. A
    job without a belief counts as endless. Jobs that outlive a belief are believed to need as long again. In line, a
    higher priority goes first.
    """
    draft = Draft(snapshot)
    fix_ends_of_reviewed(draft)
    line = draft.with_displaced(draft.candidates(), lambda v: v.rank)
    head, lending = _start_in_order(draft, line, params), NOTHING_LENT
    if head is not None:
        _backfill(draft, line, head, params)
        draft.reasons["*"] = f"waits: '{head.job.id}' is first in line and must not be delayed"
    else:  # or what is idle is kept for the first in line
        lending = lend_idle(draft, params, lambda v: fix_end(draft, v, restart_s(v)))
    return draft.plan(lending.wake(Wake(freed_gpus=1 if head is not None or draft.over_quota else None, epoch=False)))


def _start_in_order(draft: Draft, line: Iterator[JobView], params: Backfill) -> JobView | None:
    """Start jobs up to the first that does not fit: that one is the head of the line."""
    for view in line:
        why = "starts: it is first in line"
        if not (draft.start(view, why) or (params.lend and _start_in_lent(draft, view, why))):
            return view
        fix_end(draft, view, cold_start_s(view))
    return None


def _start_in_lent(draft: Draft, view: JobView, why: str) -> bool:
    """Start the job in what is lent to elastic jobs, the last to end first."""
    shrunk = start_in_lent(draft, view, why, reversed(elastic_jobs(draft)))
    for borrower in shrunk:
        fix_end(draft, borrower, restart_s(borrower))
    return bool(shrunk)


def _backfill(draft: Draft, line: Iterator[JobView], head: JobView, params: Backfill) -> None:
    """Start those behind the head of the line that do not delay it."""
    reservation: Reservation | None = None
    passed_over = 0
    thinned: set[Shape] = set()  # of which only jobs that are brief were left in line, unless they are many
    for view in line:
        if params.depth and passed_over == params.depth:
            return
        if draft.capacity.place(view.job, view.job.sizes[0]) is None:
            draft.pass_over(view)
            passed_over += 1
            continue
        if reservation is None:  # Not before it is needed: mostly nothing is free anyway.
            reservation = _reserve(draft, head)
        if any(_start_without_delay(draft, view, size, reservation) for size in reversed(view.job.sizes)):
            continue
        passed_over += 1
        shape = shape_of(view.job)
        hopeless = all((shape, size) in reservation.crowded for size in view.job.sizes)
        if hopeless and shape not in thinned and not params.depth:
            thinned.add(shape)
            keep_brief_in_line(draft, view, reservation.at_s - draft.snapshot.now_s)


def _reserve(draft: Draft, head: JobView) -> Reservation:
    """Let what is placed end in the believed order until the head of the line fits."""
    snapshot, job, size = draft.snapshot, head.job, head.job.sizes[0]
    capacity, needs = draft.capacity, size * job.demand.gpus
    started = [(memo["end_s"], j) for j, memo in draft.memos.items() if memo and not snapshot.jobs[j].partitions]
    placed = ((entry[0][0], entry[-1]) for entry in snapshot.placed)
    for then_s, job_id in merge(placed, sorted(started)):
        if then_s == inf:
            break
        capacity = capacity.give(draft.slices_of(snapshot.jobs[job_id]))
        if capacity.gpus >= needs and (places := capacity.place(job, size)) is not None:
            slices = [_sparing(draft, capacity, part) for part in capacity.slices(job, places)]
            capacity = capacity.take(slices)
            return Reservation(head, max(then_s, snapshot.now_s), tuple(s.node for s in slices), capacity, set())
    return Reservation(head, inf, (), capacity, set())


def _sparing(draft: Draft, then: Capacity, part: Slice) -> Slice:
    """As many GPUs of the node as the reservation has there; those that are free now only if there are no others."""
    now, later = draft.capacity[part.node].gpus, then[part.node].gpus
    ids = (*gpu_ids(later & ~now), *gpu_ids(later & now))
    return replace(part, gpus=tuple(sorted(ids[: len(part.gpus)])))


def _start_without_delay(draft: Draft, view: JobView, size: int, reservation: Reservation) -> bool:
    """Start the job if it is believed to be done when the head of the line can start, or if it fits beside it."""
    now_s, head_id = draft.snapshot.now_s, reservation.head.job.id
    done_s = now_s + cold_start_s(view) + left_s(view, now_s, size, _pace_at(draft, view, size))
    if done_s <= reservation.at_s and done_s < inf:
        started = draft.start(view, f"starts: it is done before '{head_id}' can start", size)
    else:
        started = _start_beside(draft, view, size, reservation, f"starts: it is not in the way of '{head_id}'")
    if started:
        fix_end(draft, view, cold_start_s(view))
    return started


def _pace_at(draft: Draft, view: JobView, size: int) -> float:
    """What the places that the job would get at a size make of its believed speed."""
    if not depends_on_place(view):
        return 1.0
    nodes = draft.capacity.layout.nodes
    return pace_in(view, [nodes[at] for at, _replicas in draft.capacity.place(view.job, size) or ()])


def _start_beside(draft: Draft, view: JobView, size: int, reservation: Reservation, why: str) -> bool:
    """Start the job where it may stay for good: in what is free now, less what the head of the line will need of it."""
    shape, head = (shape_of(view.job), size), reservation.head.job
    if shape in reservation.crowded or (reservation.at_s == inf and not head.excluded_nodes):
        return False
    whole = draft.capacity
    if reservation.at_s < inf:
        kept = [whole[n].slice_of(n).minus(reservation.spare[n].slice_of(n)) for n in reservation.nodes]
    else:  # It may need all but nodes that are reserved for other owners.
        kept = [free.slice_of(node.id) for node, free in whole if node.id not in head.excluded_nodes]
        kept = [part for part in kept if any(part.vector)]
    draft.capacity = whole.take(kept)
    if draft.capacity.place(view.job, size) is None:
        reservation.crowded.add(shape)
        draft.capacity = whole
        return False
    if not draft.start(view, why, size):  # its owner's quota
        draft.capacity = whole
        return False
    draft.capacity = draft.capacity.give(kept)
    reservation.spare = reservation.spare.take(draft.slices_of(view))
    return True
