"""From what an agent reports to facts: pure, and told by the state whether a report is news."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

from hocket.agent.protocol import Report
from hocket.executors.agents.run_numbers import changes_place, coming, present, tenancy_of
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobResized,
    JobSaved,
    JobStarted,
    ProgressReported,
    WorkLost,
)
from hocket.model.view import Doing, JobView, Tier

_MOST_METRICS = 64
_LEAST_LOST_S = 1.0
GONE = ("exited", "lost", "cannot-start")


def facts(view: JobView, report: Report, now_s: float) -> list[Event]:
    """The events that a report of a live job means; none where it is no news."""
    job_id, run = view.job.id, report.run
    tenancy = tenancy_of(view)
    match report.event:
        case "prepared":
            return [JobPrepared(now_s, job_id)] if view.preparing and run == coming(view) else []
        case "started" if tenancy is not None and run == coming(view):
            if tenancy.doing is Doing.STARTING:
                return [JobStarted(now_s, job_id, attempt=run.number)]
            if tenancy.doing is Doing.RESIZING:
                return [JobResized(now_s, job_id, attempt=run.number)]
            if tenancy.doing is Doing.MOVING:
                return [JobMoved(now_s, job_id, attempt=run.number)]
        case "progress" if tenancy is not None and run == present(view):
            return _progress(view, report, now_s)
        case "checkpoint-asked" if tenancy is not None and run == present(view):
            return [JobCheckpointed(now_s, job_id)]
        case "saved" if tenancy is not None and run == present(view):
            return [JobSaved(now_s, job_id)]
        case "exited" | "lost" | "cannot-start":
            return _gone(view, report, now_s)
    return []


def _progress(view: JobView, report: Report, now_s: float) -> list[Event]:
    epoch, metrics = int(report.fields.get("epoch", 0)), _metrics(report.fields.get("metrics", {}).items())
    if epoch > view.epoch:
        return [EpochEnded(now_s, view.job.id, epoch, metrics)]
    said_before = any(o.epoch == epoch and o.metrics == metrics for o in view.observations)
    return [] if said_before else [ProgressReported(now_s, view.job.id, epoch, metrics)]


def _metrics(items: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    found = {str(name)[:100]: nan if value is None else float(value) for name, value in items}  # JSON has no NaN.
    return dict(list(found.items())[:_MOST_METRICS])


def is_finish(report: Report) -> bool:
    """Did the run come to its end by itself?"""
    return report.event == "exited" and report.fields.get("code") == 0 and not report.fields.get("asked")


def _gone(view: JobView, report: Report, now_s: float) -> list[Event]:
    """A run is no more: it finished, left as it was asked to, or broke."""
    job_id, run = view.job.id, report.run
    tenancy = tenancy_of(view)
    if tenancy is None:
        # It starts cold when its turn comes: a job in its place must not wait for what cannot be prepared.
        return [JobPrepared(now_s, job_id)] if view.preparing and run == coming(view) else []
    if run not in (present(view), coming(view)):
        return []
    if run == coming(view) and tenancy.coming is None:
        return []  # One that was only prepared.
    if run == present(view) and tenancy.holding is None:
        return []  # It paused long ago.
    finished = is_finish(report)
    left = report.event == "exited" and bool(report.fields.get("asked")) and not report.fields.get("hung")
    if tenancy.doing is Doing.ENDING:
        return [JobEnded(now_s, job_id, view.verdict or "stopped")]
    if finished:
        started = [JobStarted(now_s, job_id, attempt=run.number)] if tenancy.doing is Doing.STARTING else []
        return [*started, JobEnded(now_s, job_id)]
    lost = []
    if run == present(view) and not report.fields.get("saved_when_asked"):
        lost = lost_work(view, now_s, _ended_as(report))
    if run == present(view):
        if changes_place(tenancy):
            return lost  # It makes room for itself.
        if tenancy.doing is Doing.PAUSING or left:
            return [JobPaused(now_s, job_id, tier=Tier.NONE if view.saved_s is None else Tier.DISK), *lost]
    return [_failed(job_id, report, now_s), *lost]


def lost_work(view: JobView, now_s: float, why: str) -> list[Event]:
    """What is lost of the job's work if its present run has ended now; nothing if it saved in the last second."""
    lost_s, epochs = view.unsaved_at(now_s)
    return [WorkLost(now_s, view.job.id, round(lost_s, 3), epochs, why)] if lost_s >= _LEAST_LOST_S else []


def _ended_as(report: Report) -> str:
    """How a run ended that did not finish, in words."""
    fields = report.fields
    if report.event != "exited":
        return "its sidecar was lost"
    if not fields.get("asked"):
        return "it failed"
    return "it was stopped"


def _failed(job_id: str, report: Report, now_s: float) -> JobFailed:
    fields = report.fields
    if report.event == "lost":
        return JobFailed(now_s, job_id, "its sidecar was lost", own=False)
    if report.event == "cannot-start":
        # An agent's own word (0) is about its node, a sidecar's about the job; what may pass is tried again.
        by_node, passing = report.n == 0, bool(fields.get("passing"))
        reason = f"it cannot start: {fields.get('reason', '')}"[:500]
        return JobFailed(now_s, job_id, reason, final=not (by_node or passing), own=not (by_node and passing))
    if fields.get("hung"):
        return JobFailed(now_s, job_id, "it hung: no progress for too long")
    signal = fields.get("signal")
    return JobFailed(now_s, job_id, f"it was killed by {signal}" if signal else f"exit code {fields.get('code')}")
