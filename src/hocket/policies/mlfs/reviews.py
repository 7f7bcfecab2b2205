"""Running jobs are looked at again, ever more rarely: what they take in fact, and which loss they began with."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from hocket.model.snapshot import Snapshot
from hocket.model.view import RECENT_OBSERVATIONS, JobView
from hocket.policies.kit.rounds import round_from

if TYPE_CHECKING:
    from hocket.policies.mlfs.mlf_h import MlfH

_FIRST_REVIEW_S = 60.0
_FORGOTTEN = RECENT_OBSERVATIONS // 2  # with more reports than that, the first may be gone at the next review


def reviewed(snapshot: Snapshot, params: MlfH) -> tuple[dict[str, Any], dict[str, float], list[JobView]]:
    """Jobs that are due: their memos, their next reviews, and which of them take more than was known."""
    memos: dict[str, Any] = {}
    reviews: dict[str, float] = {}
    heavier: list[JobView] = []
    for job_id in snapshot.due:
        view = snapshot.jobs.get(job_id)
        if view is None or view.job.tasks is None or not view.partitions:
            continue
        started_s = snapshot.now_s if view.started_s is None else view.started_s
        reviews[job_id] = next_review_s(snapshot.now_s, snapshot.now_s - started_s, params)
        memo = view.memo or {}
        if len(view.observations) > _FORGOTTEN and "first_loss" not in memo:
            seen = [x for o in view.observations if isfinite(x := o.metrics.get(params.metric, inf))]
            if seen:
                memo = memos[job_id] = {**memo, "first_loss": seen[0]}
        if view.use is None:
            continue
        known = memo.get("use", sum(t.demand.gpu_load for t in view.job.tasks.tasks))
        if view.use.gpus != known:
            memos[job_id] = {**memo, "use": view.use.gpus}
        if params.relieve and view.use.gpus > known * (1 + 1e-6):
            heavier.append(view)
    return memos, reviews, heavier


def next_review_s(now_s: float, ran_s: float, params: MlfH) -> float:
    """When to look at a running job again: ever more rarely, and in a round."""
    step_s = max(params.round_s, _FIRST_REVIEW_S)
    at_s = now_s + max(step_s, ran_s)
    return round_from(at_s, params.round_s) if params.round_s else at_s
