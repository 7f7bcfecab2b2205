"""Optimus by termination, as the Reshape paper compares with it: jobs start small, and grow by marginal gain."""

from __future__ import annotations

from heapq import heapify, heappop

from msgspec.structs import replace

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.remaining_time import (
    PredictedEnds,
    Predicting,
    begin_s,
    by_end,
    nodes_of,
    only_on,
    speed,
    speed_ratio,
    work_s,
)
from hocket.policies.registry import policy


@policy(
    "optimus",
    params=Predicting,
    order=by_end,
    paper="Optimus, EuroSys'18, as Reshape has it",
    reads_usage=False,
    reads=(),
)
def decide(snapshot: Snapshot, params: Predicting) -> Plan:
    """Newcomers get their smallest size; idle GPUs go, a size at a time, to the job that gains most time for each.

    The gain counts a whole restart: the job is terminated, and prepared and started anew. No job ever shrinks, so a
    newcomer waits while nothing is idle, and no job grows while one waits that could use what is.
    """
    draft = Draft(snapshot)
    ends = PredictedEnds(draft)
    waits = _start_newcomers(draft, ends, params.unknown_s)
    may_grow = not waits and draft.free_gpus > 0
    if may_grow:
        _grow_by_gain(draft, ends)
    if waits:
        draft.reasons["*"] = "waits: its smallest size is not free, and no job shrinks"
    again = may_grow and (ends.changing or bool(ends.changed))
    return draft.plan(Wake(epoch=may_grow, at_s=snapshot.now_s if again else None))


def _start_newcomers(draft: Draft, ends: PredictedEnds, unknown_s: float) -> bool:
    """Start the jobs that fit at their smallest size, where they run fastest; True if others wait."""
    now_s, waits = draft.snapshot.now_s, False
    for view in draft.candidates():
        smallest = view.job.sizes[0]
        of_one_kind = [k for k in ends.kinds(view.job) if k is not None]
        for kind in (*sorted(of_one_kind, key=lambda k: -speed(view, smallest, k, 1)), None):
            if draft.start(replace(view, job=only_on(view.job, kind)), "starts: at its smallest size", smallest):
                nodes = nodes_of(draft, view)
                runs_s = work_s(view, now_s, unknown_s) / speed(view, smallest, nodes[0].gpu_kind, len(nodes))
                ends.change(view, now_s + (begin_s(view) + runs_s))
                break
        else:
            waits = True
            draft.pass_over(view)
    return waits


def _grow_by_gain(draft: Draft, ends: PredictedEnds) -> None:
    """One size up for the job that gains most by each GPU, again and again; each job once, for then it restarts."""
    now_s = draft.snapshot.now_s
    line = []
    for view, partition, ends_s in ends.settled():
        sizes, size = view.job.sizes, sum(partition.tenants[0].replicas)
        if size == sizes[-1] or ends_s <= now_s:
            continue
        more = sizes[sizes.index(size) + 1]
        then_s = now_s + view.costs.restart_s(warm=False) + (ends_s - now_s) / speed_ratio(view, more, size)
        gain = (ends_s - then_s) / ((more - size) * max(view.job.demand.gpus, 1))
        if then_s < ends_s - 1e-6:
            line.append((-gain, view.number, view, more, then_s))
    heapify(line)
    while line and draft.free_gpus:
        _gain, _number, view, more, then_s = heappop(line)
        if draft.resize(view, more, "grows: it gains most from GPUs that are idle, a restart included"):
            ends.change(view, then_s)
