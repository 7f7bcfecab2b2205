"""Trials that are jobs of a controller: what their reports mean for the search, and what to request of the controller.

Pure. A trial is wanted to run, to be paused or to be stopped; its job has some state; the difference is what is
requested. So it does not matter when the process that tunes was killed, or what had been requested before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any

from msgspec import Struct

from hocket.model.criterion import CriterionError, Duration, Epochs, RunTime, Steps, parse
from hocket.tune.definition import StudyError

_ENDED_WELL = ("finished", "attained", "missed")


class Unit(Struct, frozen=True):
    """What the search counts."""

    limit: Epochs | Steps  # epochs or steps that are one unit

    def progress(self, epoch: float, step: float) -> float:
        """Units done."""
        return (epoch if isinstance(self.limit, Epochs) else step) / self.limit.count

    def most(self, units: int) -> int:
        """Epochs or steps in so many units."""
        return units * self.limit.count

    def bound(self, units: int) -> str:
        """The criterion that ends a job whose tuner is gone: one unit later, as its last value may come late."""
        word = "epochs" if isinstance(self.limit, Epochs) else "steps"
        return f"for {self.most(units + 1)} {word}"

    def __str__(self) -> str:
        return str(self.limit)


def unit_of(text: str) -> Unit:
    """As users write it: `1 epoch`, `100 steps`, or `epoch` alone."""
    words = text.strip() if text.strip()[:1].isdigit() else f"1 {text.strip()}"
    try:
        criterion = parse(f"for {words}")
    except (CriterionError, ValueError):
        criterion = None
    if not isinstance(criterion, RunTime) or isinstance(criterion.limit, Duration):
        raise StudyError(f"unit must be epochs or steps, as in '1 epoch' or '100 steps', not '{text}'")
    return Unit(criterion.limit)


class JobReport(Struct, frozen=True):
    """What a job said once."""

    epoch: float
    step: float
    metrics: Mapping[str, Any]  # None: it was not finite


class JobLook(Struct, frozen=True):
    """A trial's job as the controller shows it."""

    state: str  # its verdict if it is over
    is_over: bool
    epoch: float = 0
    step: float = 0
    metrics: Mapping[str, Any] = {}  # the last value of each
    reports: Sequence[JobReport] = ()  # the most recent, oldest first
    reason: str = ""


class RungReached(Struct, frozen=True):
    """A trial has the metric after the units that it was to train."""

    metrics: dict[str, float]


class TrialFailed(Struct, frozen=True):
    """A trial will never have it."""

    reason: str
    lacks_metric: bool = False  # it works, but does not report what the study is about


def result_of(look: JobLook, unit: Unit, units: int, metric: str) -> RungReached | TrialFailed | None:
    """What is known of a trial after so many units: the first value that it reported then; None: it is not there yet.

    One that ends by itself earlier, or attains nothing more, keeps its last value.
    """
    for report in look.reports:
        if unit.progress(report.epoch, report.step) >= units and metric in report.metrics:
            return _reached(report.metrics, metric)
    if look.is_over:
        if look.state not in _ENDED_WELL:
            return TrialFailed(look.reason or look.state)
        if metric not in look.metrics:
            return TrialFailed(f"it ended and {_lacking(look.metrics, metric)}", lacks_metric=True)
        return _reached(look.metrics, metric)
    seen = {name for report in look.reports for name in report.metrics} | set(look.metrics)
    if unit.progress(look.epoch, look.step) >= units + 1 and metric not in seen:
        done = f"{unit.most(units + 1)} {'epochs' if isinstance(unit.limit, Epochs) else 'steps'}"
        return TrialFailed(f"it has done {done} and {_lacking(look.metrics, metric)}", lacks_metric=True)
    return None


def _reached(metrics: Mapping[str, Any], metric: str) -> RungReached | TrialFailed:
    value = metrics[metric]
    if value is None or not isfinite(value):
        return TrialFailed(f"its {metric} was not a finite number")
    return RungReached({name: float(v) for name, v in metrics.items() if v is not None})


def _lacking(metrics: Mapping[str, Any], metric: str) -> str:
    return f"reported {', '.join(sorted(metrics)) or 'no value at all'}, but not '{metric}', which is the metric"


class Want(StrEnum):
    """What the search wants of a trial's job."""

    RUN = "run"
    PAUSE = "pause"  # it may go on later
    STOP = "stop"


class NextStep(StrEnum):
    """What to request of the controller for a trial's job."""

    SUBMIT = "submit"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    NOTHING = ""


def next_step(want: Want, look: JobLook | None, last: NextStep) -> NextStep:
    """What brings a job there; `last` is what this process asked of it before, NOTHING if it has asked nothing yet.

    A user may pause a trial, too: then it is left as it is, until the study is run again.
    """
    if look is None:
        return NextStep.SUBMIT if want is Want.RUN else NextStep.NOTHING
    if look.is_over:
        return NextStep.NOTHING
    match want:
        case Want.RUN:
            is_ours = last in (NextStep.PAUSE, NextStep.NOTHING)
            return NextStep.RESUME if look.state in ("held", "pausing") and is_ours else NextStep.NOTHING
        case Want.PAUSE:
            return NextStep.PAUSE if last is not NextStep.PAUSE else NextStep.NOTHING
        case Want.STOP:
            return NextStep.STOP if last is not NextStep.STOP else NextStep.NOTHING
