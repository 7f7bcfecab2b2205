"""MLF-H, the heuristic of MLFS: tasks by priority, each to the server nearest to its ideal host."""

from __future__ import annotations

from math import inf, isfinite
from typing import Annotated, Any

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import RECENT_OBSERVATIONS, JobView
from hocket.policies.kit.rounds import is_due, next_round_s, round_from
from hocket.policies.mlfs.priority import Weights
from hocket.policies.mlfs.queue import queue_rank
from hocket.policies.registry import Params, policy

_LEAST_FLOOR_S = 1.0
_FIRST_REVIEW_S = 60.0
_FORGOTTEN = RECENT_OBSERVATIONS // 2  # with more reports than that, the first may not be there at the next review


class MlfH(Params, frozen=True):
    alpha: Annotated[float, Meta(ge=0, le=1, description="weight of the ML part of a priority (6)")] = 0.3
    gamma: Annotated[float, Meta(gt=0, lt=1, description="what a dependant's priority counts (3), (5)")] = 0.8
    gamma_d: Annotated[float, Meta(ge=0, description="weight of a near deadline (4)")] = 0.3
    gamma_r: Annotated[float, Meta(ge=0, description="weight of a short remaining time (4)")] = 0.3
    gamma_w: Annotated[float, Meta(ge=0, description="weight of the waiting time (4)")] = 0.35
    h_r: Annotated[float, Meta(gt=0, le=1, description="use of a resource above which a server is overloaded")] = 0.9
    p_s: Annotated[float, Meta(gt=0, le=1, description="share of the lowest priorities that may leave a GPU")] = 0.1
    unit_s: Annotated[float, Meta(gt=0, description="the unit of times in (4); in hours waiting weighs little")] = (
        3600.0
    )
    round_s: Annotated[float, Meta(ge=0, description="it decides at multiples of this; 0: at once")] = 60.0
    longest_deadline_s: Annotated[float, Meta(gt=0, description="deadline of jobs that state none")] = 86400.0
    metric: Annotated[str, Meta(description="the name under which jobs report their loss")] = "loss"
    whole: Annotated[bool, Meta(description="a job starts with all its tasks; false: task by task")] = True
    patience_s: Annotated[float, Meta(gt=0, description="no lower priority overtakes a job that waited this long")] = (
        604800.0
    )
    evict: Annotated[bool, Meta(description="a task that must leave and fits nowhere waits; false: it stays")] = True
    urgency: Annotated[bool, Meta(description="whether a job's urgency counts (2)")] = True
    traffic: Annotated[bool, Meta(description="whether tasks go to those that they exchange data with")] = True
    relieve: Annotated[bool, Meta(description="whether tasks leave overloaded servers")] = True
    copies: Annotated[int, Meta(ge=0, le=8, description="of each job's first task, against stragglers")] = 0

    @property
    def weights(self) -> Weights:
        """The constants of the equations."""
        floor_s = max(self.round_s, _LEAST_FLOOR_S)
        return Weights(
            self.alpha, self.gamma, self.gamma_d, self.gamma_r, self.gamma_w, self.unit_s, floor_s,
            self.longest_deadline_s, self.urgency,
        )  # fmt: skip


def rank(view: JobView, now_s: float, params: MlfH) -> tuple[Any, ...]:
    """What the queue's columns need of the job."""
    return queue_rank(view, now_s, params.weights, params.metric)


@policy("mlf_h", params=MlfH, order=rank, paper="MLFS, CoNEXT'20")
def decide(snapshot: Snapshot, params: MlfH) -> Plan:
    """Tasks by what they bring and how they hurry, each to the server nearest to its ideal host.

    Priorities rest on urgency, iteration, loss reduction, model part, dependants, deadline, remaining and waiting time.
    Where tasks turn out to take more than they asked for, those nearest to the ideal mover leave overloaded servers.
    """
    now_s = snapshot.now_s
    asked_s = (snapshot.memo or {}).get("asked_s")
    if params.round_s and not snapshot.due and not is_due(now_s, params.round_s, asked_s):  # Reviews are in rounds too.
        return _not_yet(snapshot, params)
    memos, reviews, heavier = _reviewed(snapshot, params)
    if snapshot.due and not heavier and not snapshot.waiting.count and snapshot.memo == _calm(snapshot):
        return Plan(memo=snapshot.memo, memos=memos, reviews=reviews, wake=Wake(freed_gpus=None, epoch=False))
    from hocket.policies.mlfs.board import remember  # They need NumPy, which no start-up shall pay for.
    from hocket.policies.mlfs.round import Round

    this = Round(snapshot, params)
    this.draft.memos.update(memos)
    this.draft.reviews.update(reviews)
    this.relieve(heavier)
    this.place()
    this.untie()
    this.alone()
    this.note_waiting()
    this.copy()
    for job_id in this.started:
        this.draft.reviews[job_id] = _review_s(now_s, 0.0, params)
    remember(this.draft.board)
    waits = this.waits
    memo = _calm(snapshot) if not this.draft.short else None
    return this.draft.plan(Wake(freed_gpus=1 if waits else None, epoch=False), memo=memo)


def _not_yet(snapshot: Snapshot, params: MlfH) -> Plan:
    """Between rounds nothing is decided. What happened is looked at in the next one."""
    first = snapshot.waiting.first()
    every = f"waits: there is a round every {params.round_s:g} s, and the next one begins with those like"
    reasons = {"*": f"{every} '{first[-1]}'"} if first else {}
    at_s = next_round_s(snapshot.now_s, params.round_s)
    wake = Wake(arrival=False, freed_gpus=None, epoch=False, at_s=at_s)
    return Plan(reasons=reasons, memo={"asked_s": at_s}, wake=wake)


def _calm(snapshot: Snapshot) -> dict[str, int]:
    """The memo of a round that left no task of a placed job without a GPU, with so many nodes up."""
    return {"up": snapshot.capacity.up.bit_count()}


def _reviewed(snapshot: Snapshot, params: MlfH) -> tuple[dict[str, Any], dict[str, float], list[JobView]]:
    """Jobs that are due: what is noted of them, when they are looked at again, and which take more than was known."""
    memos: dict[str, Any] = {}
    reviews: dict[str, float] = {}
    heavier: list[JobView] = []
    for job_id in snapshot.due:
        view = snapshot.jobs.get(job_id)
        if view is None or view.job.tasks is None or not view.partitions:
            continue
        started_s = snapshot.now_s if view.started_s is None else view.started_s
        reviews[job_id] = _review_s(snapshot.now_s, snapshot.now_s - started_s, params)
        memo = view.memo or {}
        if len(view.observations) > _FORGOTTEN and "first_loss" not in memo:
            seen = [x for o in view.observations if isfinite(x := o.metrics.get(params.metric, inf))]
            if seen:
                memo = memos[job_id] = {**memo, "first_loss": seen[0]}
        if view.use is None:
            continue
        known = memo.get("use", sum(t.demand.gpus * t.demand.gpu_share for t in view.job.tasks.tasks))
        if view.use.gpus != known:
            memos[job_id] = {**memo, "use": view.use.gpus}
        if params.relieve and view.use.gpus > known * (1 + 1e-6):
            heavier.append(view)
    return memos, reviews, heavier


def _review_s(now_s: float, ran_s: float, params: MlfH) -> float:
    """When to look at a running job again: ever more rarely, and in a round."""
    step_s = max(params.round_s, _FIRST_REVIEW_S)
    at_s = now_s + max(step_s, ran_s)
    return round_from(at_s, params.round_s) if params.round_s else at_s
