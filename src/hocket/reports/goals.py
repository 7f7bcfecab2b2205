"""What a job was to reach, and whether it did: by its deadline, and by its criterion or target."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.criterion import Criterion, RunTime, judge
from hocket.model.job import Job
from hocket.model.plan import Verdict


def sought(job: Job) -> Criterion | None:
    """What it is judged by: its criterion, else its target."""
    return job.target if job.criterion is None else job.criterion


def deadline_met(
    job: Job, submitted_s: float, ended_s: float | None, verdict: str, goes_on_s: float | None
) -> bool | None:
    """Whether it ended by its deadline and did not fail; None if it has none, or if that is not decided yet.

    `goes_on_s` is the present of a job that may still end: it is undecided until its deadline has passed. None for one
    that is over, or stuck for good: that one never meets its deadline.
    """
    if job.deadline_s is None:
        return None
    if goes_on_s is not None and goes_on_s - submitted_s < job.deadline_s:
        return None
    return ended_s is not None and verdict != Verdict.FAILED and ended_s - submitted_s <= job.deadline_s


def goal_met(
    job: Job, verdict: str, history: Sequence[tuple[int, float]] | None, epoch: int, after_s: float, goes_on: bool
) -> bool | None:
    """By verdict, or by its last report: a job may end by itself in the moment in which it gets there.

    One that goes on may report better and worse yet: it is undecided (None) until the limit of its goal has passed.
    """
    criterion = sought(job)
    if criterion is None or isinstance(criterion, RunTime):
        return None
    if verdict == Verdict.ATTAINED:
        return True
    found = judge(criterion, history or (), epoch, after_s)
    return None if goes_on and found != "missed" else found == "attained"
