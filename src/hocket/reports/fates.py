"""What became of every job of a run, as a record of its decisions needs it: their outcome."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, nan

from msgspec import Struct

from hocket.control.ports import Cycle, Header
from hocket.model.criterion import Goal
from hocket.model.event import EpochEnded, JobSubmitted, ProgressReported
from hocket.model.job import Job
from hocket.reports.account import account

LOSS = "loss"  # the metric that says how much there is left to learn
UNKNOWN = -1  # in place of no and yes, 0 and 1: there is no deadline or goal, or the job is not over


class Fate(Struct, frozen=True, gc=False):
    """How a job ended. The best are of its goal's metric; all values are NaN where it reported none."""

    ended_s: float = nan
    verdict: str = ""  # empty while it is unfinished
    deadline_met: int = UNKNOWN
    goal_met: int = UNKNOWN
    best: float = nan
    best_by_deadline: float = nan
    first_loss: float = nan


class _Reported(Struct, gc=False):
    job: Job
    submitted_s: float
    best: float = nan
    by_deadline: float = nan
    first_loss: float = nan


def fates(header: Header, cycles: Iterable[Cycle]) -> dict[tuple[str, float], Fate]:
    """By a job's id and when it was submitted, for an id may be used again."""
    kept = list(cycles)
    reported = _reported(kept)
    found = {}
    for record in account(header, kept).jobs:
        key = (record.job.id, record.submitted_s)
        seen = reported.get(key)
        values = (nan, nan, nan) if seen is None else (seen.best, seen.by_deadline, seen.first_loss)
        over = record.ended_s is not None
        found[key] = Fate(
            nan if record.ended_s is None else record.ended_s,
            record.verdict,
            _yes(record.deadline_met) if over else UNKNOWN,
            _yes(record.goal_met) if over else UNKNOWN,
            *values,
        )
    return found


def _reported(cycles: list[Cycle]) -> dict[tuple[str, float], _Reported]:
    found: dict[tuple[str, float], _Reported] = {}
    live: dict[str, _Reported] = {}
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, JobSubmitted):
                new = live[event.job.id] = _Reported(event.job, event.at_s)
                found[event.job.id, event.at_s] = new
            elif isinstance(event, EpochEnded | ProgressReported) and (seen := live.get(event.job)) is not None:
                if not isfinite(seen.first_loss) and isfinite(loss := event.metrics.get(LOSS, nan)):
                    seen.first_loss = loss
                goal = seen.job.goal
                value = nan if goal is None else event.metrics.get(goal.metric, nan)
                if goal is not None and isfinite(value):
                    seen.best = _better(goal, seen.best, value)
                    deadline_s = seen.job.deadline_s
                    if deadline_s is None or event.at_s - seen.submitted_s <= deadline_s:
                        seen.by_deadline = seen.best
    return found


def _better(goal: Goal, best: float, value: float) -> float:
    if not isfinite(best):
        return value
    return max(best, value) if goal.relation == ">=" else min(best, value)


def _yes(met: bool | None) -> int:
    return UNKNOWN if met is None else int(met)
