"""What the ended jobs of a journal have shown, whatever policy decided: past jobs to begin another journal with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from hocket.control.ports import Beginning, Cycle, Header
from hocket.estimators.completion import observed, shown_by
from hocket.estimators.quality import noted
from hocket.model.criterion import Convergence, Goal
from hocket.model.curve import NO_BELIEFS, Beliefs
from hocket.model.event import EpochEnded, Event, JobEnded, JobFailed, ProgressReported
from hocket.model.job import Job, Kind
from hocket.model.metric_name import less_is_better, more_is_better
from hocket.model.past_job import MAX_PAST_JOBS, PastJob
from hocket.model.view import JobView
from hocket.service.history_fold import HistoryFold


def past_jobs_of(
    header: Header, name: str, cycles: Iterable[Cycle], beginning: Beginning | None = None
) -> tuple[PastJob, ...]:
    """The last jobs that have ended in these cycles, the oldest first. Raises JournalError.

    `cycles` are those of the journal of this name after `beginning`. Of a job without a criterion, the metric that its
    name says is an accuracy counts, or else a loss.
    """
    fold = HistoryFold(header, name, beginning)
    seen: dict[str, tuple[str, Beliefs]] = {}  # job → the metric that counts, and what it has shown
    found: deque[PastJob] = deque(maxlen=MAX_PAST_JOBS)
    for number, cycle in enumerate(cycles, fold.number + 1):
        live = fold.controller.state.jobs.live
        for event in cycle.events:
            if isinstance(event, EpochEnded | ProgressReported | JobEnded | JobFailed) and event.job in live:
                _take_in(live[event.job], event, seen, found)
        fold.fold(number, cycle)
    return tuple(found)


def _take_in(view: JobView, event: Event, seen: dict[str, tuple[str, Beliefs]], found: deque[PastJob]) -> None:
    """One event of a job that is live."""
    job_id = view.job.id
    if isinstance(event, EpochEnded | ProgressReported):
        metric, beliefs = seen.get(job_id, ("", NO_BELIEFS))
        metric = metric or _metric_of(view.job, event.metrics)
        epoch = event.epoch
        if view.job.kind is not Kind.QUERY and metric in event.metrics and epoch > view.epoch:
            beliefs = noted(beliefs, epoch, event.metrics[metric])
        done_s = view.done_at(event.at_s)
        seen[job_id] = metric, observed(view, beliefs, epoch, event.metrics, done_s) or beliefs
    elif isinstance(event, JobEnded) or (isinstance(event, JobFailed) and event.final):
        metric, beliefs = seen.pop(job_id, ("", NO_BELIEFS))
        peaks = (event.peak_mib, event.peak_gpu_mib) if isinstance(event, JobEnded) else (0.0, 0.0)
        shown = shown_by(replace(view, beliefs=beliefs), metric, *peaks)
        if shown is not None:
            found.append(shown)


def _metric_of(job: Job, metrics: dict[str, float]) -> str:
    if isinstance(job.criterion, Goal | Convergence):
        return job.criterion.metric
    names = sorted(metrics)
    return next(filter(more_is_better, names), next(filter(less_is_better, names), ""))
