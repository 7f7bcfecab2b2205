"""Timers for jobs, and the verdict on a job's criterion and limit.

A deadline counts from submission, as users do; `for 2h` counts the time the job ran.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from heapq import heappop, heappush

from msgspec.structs import replace

from hocket.model import criterion as criteria
from hocket.model.criterion import Convergence, Goal, RunTime, Seen
from hocket.model.plan import Verdict
from hocket.model.view import RECENT_OBSERVATIONS, JobView, Observation

_TOLERANCE_S = 1e-6  # tolerance: a timer may be early by rounding


class Timers:
    """When to look at jobs: a review that the policy asked for, the end of a hold, a criterion or limit."""

    __slots__ = ("heap", "verdict_s")

    def __init__(self) -> None:
        self.heap: list[tuple[float, str]] = []  # (when, job); outdated ones are dropped when they come up
        self.verdict_s: dict[str, float] = {}  # job → the last time set for its criterion or limit

    def add(self, at_s: float, job_id: str) -> None:
        """Look at a job then."""
        heappush(self.heap, (at_s, job_id))

    def add_verdict(self, at_s: float, job_id: str, now_s: float) -> None:
        """Look at a job's criterion or limit then; set only once until that time has come."""
        if at_s != self.verdict_s.get(job_id) or at_s <= now_s:
            self.verdict_s[job_id] = at_s
            self.add(at_s, job_id)

    def pop_due(self, now_s: float, jobs: Container[str]) -> tuple[str, ...]:
        """The live jobs whose time has come, each once. Times of ended ones may have been dropped before, or not."""
        heap = self.heap
        due: dict[str, None] = {}
        while heap and heap[0][0] <= now_s:
            due[heappop(heap)[1]] = None
        return tuple(job_id for job_id in due if job_id in jobs)

    def next_s(self, jobs: Mapping[str, JobView]) -> float | None:
        """The earliest time that is still valid for a live job."""
        heap = self.heap
        while heap:
            at_s, job_id = heap[0]
            view = jobs.get(job_id)
            if view is not None and (
                at_s in (view.review_s, view.held_until_s) or may_be_decided(view) or _ends_protection(view, at_s)
            ):
                return at_s
            heappop(heap)  # The job has ended, or the policy has asked for another time since.
            if self.verdict_s.get(job_id) == at_s:
                del self.verdict_s[job_id]
        return None

    def drop_ended(self, jobs: Mapping[str, JobView]) -> None:
        """Drop times of ended jobs: those far ahead would stay for long."""
        self.heap = sorted({timer for timer in self.heap if timer[1] in jobs})  # Sorted, it is a heap too.
        self.verdict_s = {job_id: self.verdict_s[job_id] for job_id in sorted(self.verdict_s) if job_id in jobs}


def _ends_protection(view: JobView, at_s: float) -> bool:
    """Does the job's protection from preemption end then, or may it?"""
    began_s, job = view.run_began_s, view.job
    return began_s is not None and at_s in (began_s + job.min_run_s, began_s + job.protect_s)


def may_be_decided(view: JobView) -> bool:
    """Has the job a criterion or a limit?"""
    return view.job.criterion is not None or view.job.limit_s is not None


def verdict(view: JobView, now_s: float) -> tuple[Verdict, str] | None:
    """The verdict by the job's criterion or limit, with the reason in words; None while it is open."""
    criterion, limit_s = view.job.criterion, view.job.limit_s
    if limit_s is not None and view.ran_at(now_s) >= limit_s - _TOLERANCE_S:
        return Verdict.OVERRAN, f"overran: its time limit is {limit_s:g} s"
    if criterion is None:
        return None
    history = [] if isinstance(criterion, RunTime) else _history(view, criterion.metric)
    outcome = criteria.judge(criterion, history, view.epoch, _elapsed_s(view, now_s), view.step)
    seen = "" if isinstance(criterion, RunTime) or not history else f" ({criterion.metric} is {history[-1].value:g})"
    if outcome == "attained":
        return Verdict.ATTAINED, f"attained: {criterion}{seen}"
    if outcome == "missed":
        return Verdict.MISSED, f"missed: {criterion}{seen}"
    return None


def verdict_at_exit(view: JobView, reports: Iterable[Observation]) -> tuple[Verdict, str] | None:
    """The verdict on a job whose process has ended by itself; None if its criterion, if any, is about no metric.

    `reports` came with the end, and are not in the view yet. Each is judged at its own time.
    """
    criterion = view.job.criterion
    if criterion is None or isinstance(criterion, RunTime):
        return None
    if view.verdict:
        return Verdict(view.verdict), view.reason
    seen = [view]
    for report in reports:
        epoch, step = max(view.epoch, report.epoch), max(view.step, report.step)
        view = replace(view, epoch=epoch, step=step, observations=(*view.observations, report))
        seen.append(view)
    for each in seen:
        history = _history(each, criterion.metric)
        elapsed_s = each.observations[-1].at_s - each.submitted_s if each.observations else 0.0
        if criteria.judge(criterion, history, each.epoch, elapsed_s, each.step) == "attained":
            return Verdict.ATTAINED, f"attained: {criterion} ({criterion.metric} is {history[-1].value:g})"
    at_step = f"at step {view.step}" if view.step else "before the end of its first epoch"
    when = f"after epoch {view.epoch}" if view.epoch else at_step
    told = _last_seen(view, criterion)
    return Verdict.MISSED, f"missed: {criterion} was not met when its process ended {when}: {told}"


def _last_seen(view: JobView, criterion: Goal | Convergence) -> str:
    """What a job said last of its criterion's metric, in words."""
    metric, history = criterion.metric, _history(view, criterion.metric)
    if not history:
        older = len(view.observations) >= RECENT_OBSERVATIONS
        return (
            f"{metric} was not in its last {RECENT_OBSERVATIONS} reports" if older else f"{metric} was never reported"
        )
    epoch, value, step = history[-1]
    earlier = f" in epoch {epoch}" if view.epoch else f" at step {step}"
    said = f"{metric} was {value:g}" + (earlier if epoch != view.epoch or (not epoch and step != view.step) else "")
    before = [s.value for s in history if s.epoch < epoch or (not epoch and s.step < step)]
    return f"{said}, {before[-1]:g} before" if before and isinstance(criterion, Convergence) else said


def _history(view: JobView, metric: str) -> list[Seen]:
    return [Seen(o.epoch, o.metrics[metric], o.step) for o in view.observations if metric in o.metrics]


def next_verdict_s(view: JobView, now_s: float) -> float | None:
    """When time alone will decide it, if nothing else changes."""
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
