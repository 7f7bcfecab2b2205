"""From what an agent reports to facts: pure, and told by the state whether a report is news."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from signal import Signals
from typing import Any

from hocket.agent.protocol import Report
from hocket.executors.agents.run_numbers import changes_place, coming, is_continuing, present, tenancy_of
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
    MetricUnseen,
    ProgressReported,
    RunsPassed,
    StateStored,
    WorkLost,
)
from hocket.model.job import Job, Kind
from hocket.model.view import Doing, JobView, SuspendedProcess, Tier

_MOST_METRICS = 64
_LEAST_LOST_S = 1.0
_REFUSED = 2  # exit code of `hocket`: bad input
_NOT_WRITTEN = "its process left memory without writing them"
_IGNORED_S = 0.5  # a job that is killed sooner had no time to react to its signal
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
        case "resized" if tenancy is not None and tenancy.doing is Doing.RESIZING and run == present(view):
            return [JobResized(now_s, job_id, in_place=True)]
        case "suspended" if tenancy is not None and tenancy.doing is Doing.PAUSING and run == present(view):
            return _suspended(view, report, now_s)
        case "continued" if is_continuing(view) and run == present(view):
            return [JobStarted(now_s, job_id, in_place=True)]
        case "progress" if tenancy is not None and run == present(view):
            return _progress(view, report, now_s)
        case "checkpoint-asked" if tenancy is not None and run == present(view):
            return [JobCheckpointed(now_s, job_id)]
        case "metric-unseen" if tenancy is not None and run == present(view):
            return _unseen(view, report, now_s)
        case "saved" if (tenancy is not None or view.suspended is not None) and run == present(view):
            return [JobSaved(now_s, job_id)]
        case "exited" | "lost" | "cannot-start":
            return _gone(view, report, now_s)
    return []


def _progress(view: JobView, report: Report, now_s: float) -> list[Event]:
    metrics, step = _metrics(report.fields.get("metrics", {}).items()), int(report.fields.get("step", 0))
    if step:
        is_news = step > view.step or not any(o.step == step and o.metrics == metrics for o in view.observations)
        return [ProgressReported(now_s, view.job.id, view.epoch, metrics, step=step)] if is_news else []
    epoch = int(report.fields.get("epoch", 0))
    if epoch > view.epoch:
        return [EpochEnded(now_s, view.job.id, epoch, metrics)]
    said_before = any(o.epoch == epoch and o.metrics == metrics for o in view.observations)
    return [] if said_before else [ProgressReported(now_s, view.job.id, epoch, metrics)]


def _unseen(view: JobView, report: Report, now_s: float) -> list[Event]:
    """That its criterion's metric is not seen; no news if an attempt before has reported it."""
    fields = report.fields
    metric = str(fields.get("metric", ""))
    if any(metric in o.metrics for o in view.observations) or (metric == "epochs" and view.epoch):
        return []
    if metric == "steps" and view.step:
        return []
    read = tuple(str(name)[:100] for name in fields.get("read", ()))
    lines = tuple(str(line)[:200] for line in fields.get("lines", ())[:3])
    return [MetricUnseen(now_s, view.job.id, metric, read, float(fields.get("after_s", 0.0)), lines)]


def _metrics(items: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    found = {str(name)[:100]: nan if value is None else float(value) for name, value in items}  # JSON has no NaN.
    return dict(list(found.items())[:_MOST_METRICS])


def is_finish(report: Report) -> bool:
    """Did the run come to its end by itself?"""
    return report.event == "exited" and report.fields.get("code") == 0 and not report.fields.get("asked")


def ignored_signal(job: Job, report: Report) -> str:
    """That a job was killed because it did not react to the signal that asks it to save and leave; empty if not."""
    fields = report.fields
    after_s = fields.get("after_s") or 0.0
    if not (fields.get("asked") and fields.get("killed") and after_s >= _IGNORED_S):
        return ""
    signal = job.launch.stop_signal if job.launch is not None else "SIGTERM"
    return f"it ignored {signal} and was killed after {after_s:.0f} s"


def _suspended(view: JobView, report: Report, now_s: float) -> list[Event]:
    """It is paused: its process is stopped, and keeps its memory."""
    tenancy = tenancy_of(view)
    if tenancy is None or tenancy.holding is None:
        return []
    node, mem_mib = tenancy.holding.slices[0].node, float(report.fields.get("mem_mib") or 0.0)
    return [JobPaused(now_s, view.job.id, tier=Tier.MEMORY, node=node, mem_mib=mem_mib)]


def process_lost(view: JobView, now_s: float, why: str) -> list[Event]:
    """The suspended process of a paused job is lost; it goes on from what is on disk."""
    reason = f"{why} while it was paused in memory"
    return [JobFailed(now_s, view.job.id, reason, own=False), *lost_work(view, now_s, reason)]


def _suspended_gone(view: JobView, report: Report, process: SuspendedProcess, now_s: float) -> list[Event]:
    """A suspended process is no more: it left as it was told, or is lost."""
    if report.event != "exited" or not report.fields.get("asked"):
        return process_lost(view, now_s, _ended_as(report))
    if report.fields.get("saved_when_asked"):
        return [StateStored(now_s, view.job.id, Tier.DISK)]
    return [StateStored(now_s, view.job.id, process.on_disk), *lost_work(view, now_s, _NOT_WRITTEN)]


def _gone(view: JobView, report: Report, now_s: float) -> list[Event]:
    """A run is no more: it finished, left as it was asked to, or broke."""
    job_id, run = view.job.id, report.run
    tenancy = tenancy_of(view)
    if view.suspended is not None and run == present(view) and (tenancy is None or is_continuing(view)):
        return _suspended_gone(view, report, view.suspended, now_s)
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
    peak_mib = float(report.fields.get("peak_mib") or 0.0)
    gpu_mib = float(report.fields.get("peak_gpu_mem_mib") or 0.0)
    if tenancy.doing is Doing.ENDING:
        return [JobEnded(now_s, job_id, view.verdict or "stopped", peak_mib=peak_mib, peak_gpu_mib=gpu_mib)]
    if finished:
        started = [JobStarted(now_s, job_id, attempt=run.number)] if tenancy.doing is Doing.STARTING else []
        return [*started, JobEnded(now_s, job_id, peak_mib=peak_mib, peak_gpu_mib=gpu_mib)]
    lost = []
    if run == present(view) and not report.fields.get("saved_when_asked"):
        lost = lost_work(view, now_s, _ended_as(report))
    if run == present(view):
        if changes_place(tenancy):
            return lost  # It makes room for itself.
        if tenancy.doing is Doing.PAUSING or left:
            return [JobPaused(now_s, job_id, tier=Tier.NONE if view.saved_s is None else Tier.DISK), *lost]
    later = int(report.fields.get("fenced_by") or 0)
    return [_failed(view.job, report, now_s), *lost, *([RunsPassed(now_s, job_id, later)] if later else [])]


def lost_work(view: JobView, now_s: float, why: str) -> list[Event]:
    """What is lost of the job's work if its present run has ended now; nothing if it saved in the last second."""
    lost_s, epochs, steps = view.unsaved_at(now_s)
    if view.suspended is not None:
        lost_s = view.suspended.unsaved_s or 0.0
        steps = max(0, view.step - view.saved_step) if lost_s else 0
    if lost_s < _LEAST_LOST_S:
        return []
    return [WorkLost(now_s, view.job.id, round(lost_s, 3), epochs, why, steps)]


def _ended_as(report: Report) -> str:
    """How a run ended that did not finish, in words."""
    fields = report.fields
    if report.event != "exited":
        return "its sidecar was lost"
    if not fields.get("asked"):
        return "it failed"
    return "it was stopped"


def _failed(job: Job, report: Report, now_s: float) -> JobFailed:
    fields, job_id = report.fields, job.id
    if report.event == "lost":
        return JobFailed(now_s, job_id, "its sidecar was lost", own=False)
    if later := int(fields.get("fenced_by") or 0):
        reason = f"run {later} of it, which is later than run {report.run.number}, has its checkpoints"
        return JobFailed(now_s, job_id, reason, own=False)
    if report.event == "cannot-start":
        # An agent's own word (0) is about its node, a sidecar's about the job; what may pass is tried again.
        by_node, passing = report.n == 0, bool(fields.get("passing"))
        reason = f"it cannot start: {fields.get('reason', '')}"[:500]
        return JobFailed(now_s, job_id, reason, final=not (by_node or passing), own=not (by_node and passing))
    if fields.get("hung"):
        return JobFailed(now_s, job_id, "it hung: no progress for too long")
    if why := fields.get("out_of_memory"):
        reason = _out_of_memory(job, str(why), float(fields.get("limit_mib") or 0.0))
        # It would start from the same state with the same limit.
        if final := why == "limit" and not fields.get("saved", True):
            reason += "; it had saved nothing, and would fail again"
        return JobFailed(now_s, job_id, reason, final=final, code=_shell_code(fields))
    signal = fields.get("signal")
    reason = f"it was killed by {signal}" if signal else f"exit code {fields.get('code')}"
    # A query that cannot be run says so by this code: it would say it again.
    is_refused = job.kind is Kind.QUERY and fields.get("code") == _REFUSED
    reason += f": the query was refused; `hocket logs {job_id}` has the reason" if is_refused else ""
    return JobFailed(now_s, job_id, reason, final=is_refused, code=_shell_code(fields))


def _out_of_memory(job: Job, why: str, limit_mib: float) -> str:
    if why != "limit":
        return "killed by the kernel: its node had no memory left"
    replicas = round(limit_mib / job.demand.mem_mib) if job.demand.mem_mib else 1
    of = f" for {replicas} replicas on a node" if replicas > 1 else ""
    return f"killed by the kernel: it used more than the {limit_mib:g} MiB that it asked for (--mem){of}"


def _shell_code(fields: dict[str, Any]) -> int | None:
    """As a shell has it in `$?`."""
    name, code = fields.get("signal"), fields.get("code")
    if not name:
        return code if isinstance(code, int) else None
    number = str(name).removeprefix("SIG")  # One without a name is told by its number.
    signal = int(number) if number.isdecimal() else getattr(Signals, str(name), None)
    return None if signal is None else 128 + int(signal)
