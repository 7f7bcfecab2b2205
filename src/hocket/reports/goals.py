"""What a job was to reach, and whether it did: by its deadline, and by its criterion or target."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.criterion import Criterion, RunTime, judge
from hocket.model.job import Job
from hocket.model.plan import Verdict


def sought(job: Job) -> Criterion | None:
    """What it is judged by: its criterion, else its target."""
    return job.target if job.criterion is None else job.criterion


def deadline_met(job: Job, submitted_s: float, ended_s: float | None, verdict: str) -> bool | None:
    """Whether it ended by its deadline and did not fail; None if it has none."""
    if job.deadline_s is None:
        return None
    return ended_s is not None and verdict != Verdict.FAILED and ended_s - submitted_s <= job.deadline_s


def goal_met(
    job: Job, verdict: str, history: Sequence[tuple[int, float]] | None, epoch: int, after_s: float
) -> bool | None:
    """By verdict, or by its last report: a job may end by itself in the moment in which it gets there."""
    criterion = sought(job)
    if criterion is None or isinstance(criterion, RunTime):
        return None
    if verdict == Verdict.ATTAINED:
        return True
    return bool(history) and judge(criterion, history or (), epoch, after_s) == "attained"
