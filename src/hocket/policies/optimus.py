"""Optimus by termination, as the Reshape paper compares with it: jobs start small, and grow by marginal gain."""

from __future__ import annotations

from heapq import heapify, heappop

from msgspec.structs import replace

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.predicted import PredictedEnds, Predicting, begin_s, by_end, on, speed, work_s
from hocket.policies.registry import policy


@policy("optimus", params=Predicting, order=by_end, paper="Optimus, EuroSys'18, as Reshape has it", reads_usage=False)
def decide(snapshot: Snapshot, params: Predicting) -> Plan:
    """Newcomers get their smallest size; idle GPUs go, a size at a time, to whoever gains most time for each.

    The gain counts a whole restart: the job is terminated, and prepared and started anew. Nobody ever shrinks, so a
    newcomer waits while nothing is idle, and nobody grows while one waits that could use what is.
    """
    draft = Draft(snapshot)
    outlook = PredictedEnds(draft)
    waiting = _serve(draft, outlook, params)
    hungry = not waiting and draft.free_gpus > 0
    if hungry:
        _grow(draft, outlook)
    if waiting:
        draft.reasons["*"] = "waits: its smallest size is not free, and nobody shrinks"
    again = hungry and (outlook.restless or bool(outlook.changed))
    return draft.plan(Wake(epoch=hungry, at_s=snapshot.now_s if again else None))


def _serve(draft: Draft, outlook: PredictedEnds, params: Predicting) -> bool:
    """Start whoever fits at its smallest size, where it runs fastest; True if somebody waits."""
    waiting = False
    for view in draft.candidates():
        smallest = view.job.sizes[0]
        of_one_kind = [k for k in outlook.kinds(view.job) if k is not None]
        for kind in (*sorted(of_one_kind, key=lambda k: -speed(view, smallest, k, 1)), None):
            if draft.start(replace(view, job=on(view.job, kind)), "starts: at its smallest size", smallest):
                _note(draft, outlook, view, begin_s(view) + _left_s(draft, view, view.job.sizes[0], params.unknown_s))
                break
        else:
            waiting = True
            draft.pass_over(view)
    return waiting


def _left_s(draft: Draft, view: JobView, size: int, unknown_s: float) -> float:
    slices = draft.slices_of(view)
    kind = draft.snapshot.nodes[slices[0].node].node.gpu_kind
    return work_s(view, draft.snapshot.now_s, unknown_s) / speed(view, size, kind, len(slices))


def _note(draft: Draft, outlook: PredictedEnds, view: JobView, left_s: float) -> None:
    outlook.change(view, draft.snapshot.now_s + left_s)


def _grow(draft: Draft, outlook: PredictedEnds) -> None:
    """One size up for whoever gains most by each GPU, again and again; each job once, for then it restarts."""
    now_s = draft.snapshot.now_s
    line = []
    for view, partition, ends_s in outlook.settled():
        sizes, size = view.job.sizes, sum(partition.tenants[0].replicas)
        if size == sizes[-1] or ends_s <= now_s:
            continue
        more = sizes[sizes.index(size) + 1]
        beliefs = view.beliefs
        faster = max(beliefs.speed_at(more), 1e-9) / max(beliefs.speed_at(size), 1e-9)
        then_s = now_s + view.costs.restart_s(warm=False) + (ends_s - now_s) / faster
        gain = (ends_s - then_s) / ((more - size) * max(view.job.demand.gpus, 1))
        if then_s < ends_s - 1e-6:
            line.append((-gain, view.number, view, more, then_s))
    heapify(line)
    while line and draft.free_gpus:
        _gain, _number, view, more, then_s = heappop(line)
        if draft.resize(view, more, "grows: it gains most from GPUs that are idle, a restart included"):
            outlook.change(view, then_s)
