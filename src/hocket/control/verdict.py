"""Has a job reached what its user asked for? One judge for all policies.

A deadline runs from submission, for that is what a user waits for; `for 2h` counts the time it ran.
"""

from __future__ import annotations

from hocket.model import criterion as criteria
from hocket.model.criterion import RunTime
from hocket.model.plan import Verdict
from hocket.model.view import JobView

_TOLERANCE_S = 1e-6  # a moment comes when it was asked for, give or take a rounding


def verdict(view: JobView, now_s: float) -> tuple[Verdict, str] | None:
    """Attained or missed, with the reason in words; None while it is open."""
    criterion, limit_s = view.job.criterion, view.job.limit_s
    if limit_s is not None and view.ran_at(now_s) >= limit_s - _TOLERANCE_S:
        return Verdict.OVERRAN, f"overran: it may run for {limit_s:g} s"
    if criterion is None:
        return None
    metric = None if isinstance(criterion, RunTime) else criterion.metric
    history = [(o.epoch, o.metrics[metric]) for o in view.observations if metric in o.metrics]
    outcome = criteria.judge(criterion, history, view.epoch, _elapsed_s(view, now_s))
    seen = f" ({metric} is {history[-1][1]:g})" if history else ""
    if outcome == "attained":
        return Verdict.ATTAINED, f"attained: {criterion}{seen}"
    if outcome == "missed":
        return Verdict.MISSED, f"missed: {criterion}{seen}"
    return None


def next_verdict_s(view: JobView, now_s: float) -> float | None:
    """When the passing of time alone will decide, as things stand."""
    moments = []
    if view.job.limit_s is not None and view.size:
        moments.append(now_s + view.job.limit_s - view.ran_at(now_s))
    criterion = view.job.criterion
    if criterion is not None and not (isinstance(criterion, RunTime) and not view.size):
        left = criteria.decided_after_s(criterion, _elapsed_s(view, now_s))
        if left is not None:
            moments.append(now_s + left)
    return min(moments, default=None)


def _elapsed_s(view: JobView, now_s: float) -> float:
    return view.ran_at(now_s) if isinstance(view.job.criterion, RunTime) else now_s - view.submitted_s
