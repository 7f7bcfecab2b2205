"""What is known of a study's trials: folded from the events in its journal, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.model.event import EpochEnded, Event, JobFailed, JobStarted, JobSubmitted
from hocket.model.job import Job
from hocket.tune.space import Config


class Result(Struct, frozen=True):
    """A trial's metrics after so many units."""

    units: int  # units of training done, each `unit_steps` steps
    metrics: dict[str, float]  # values by name, as `evaluate` gave them
    at_s: float  # seconds since the study began
    began_s: float  # when the stage that led to it began, in seconds since the study began


class Trial(Struct, frozen=True):
    """One configuration and its results."""

    number: int  # trials drawn before it
    config: Config  # hyperparameters by name
    results: tuple[Result, ...] = ()  # what it reached so far, by ascending units
    asked: int = 0  # units of the last stage that was submitted
    began_s: float = 0.0  # when that stage began, in seconds since the study began
    failed: str = ""  # why it will never go on; empty: it may

    @property
    def units(self) -> int:
        """How far it has come."""
        return self.results[-1].units if self.results else 0

    def result_at(self, units: int) -> Result | None:
        """Its result after that many `units`; None if it has none."""
        return next((r for r in self.results if r.units == units), None)

    def is_over_at(self, units: int) -> bool:
        """Whether it has failed, or has its result after that many `units`."""
        return bool(self.failed) or self.result_at(units) is not None


def job_id(trial: int, units: int) -> str:
    """The job that trains a trial to so many units."""
    return f"t{trial}@{units}"


def of_job(name: str) -> tuple[int, int]:
    """The trial and the units of a job."""
    trial, _, units = name.removeprefix("t").partition("@")
    return int(trial), int(units)


def model_name(trial: int) -> str:
    """The name of a trial's model on its device and among the checkpoints."""
    return f"t{trial}"


def config_of(job: Job) -> Config:
    """The configuration that a job carries as what it runs."""
    config: Config = msgspec.json.decode(job.command[0])
    return config


class Trials:
    """All trials, in the order of their numbers."""

    def __init__(self, metric: str, goal: str) -> None:
        self.metric, self.goal = metric, goal
        self.all: dict[int, Trial] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Fold events in."""
        for event in events:
            if isinstance(event, JobSubmitted):
                number, units = of_job(event.job.id)
                trial = self.all.get(number) or Trial(number, config_of(event.job))
                self.all[number] = replace(trial, asked=units, began_s=event.at_s)
            elif isinstance(event, JobStarted | EpochEnded | JobFailed):
                number, _units = of_job(event.job)
                self.all[number] = self._taken(self.all[number], event)

    def _taken(self, trial: Trial, event: Event) -> Trial:
        if isinstance(event, JobStarted):
            return replace(trial, began_s=event.at_s)
        if isinstance(event, EpochEnded):
            value = event.metrics.get(self.metric)
            if value is None or not isfinite(value):
                return replace(trial, failed=f"its {self.metric} was {value} after {event.epoch} units")
            result = Result(event.epoch, event.metrics, event.at_s, trial.began_s)
            results = sorted(
                (*trial.results, result), key=lambda r: r.units
            )  # A study that is extended has other rungs.
            return replace(trial, results=tuple(results))
        if isinstance(event, JobFailed) and event.final:
            return replace(trial, failed=event.reason)
        return trial

    @property
    def has_failed(self) -> bool:
        """Whether all trials have failed without a result: there is nothing to continue."""
        return bool(self.all) and all(t.failed and not t.results for t in self.all.values())

    def score(self, result: Result) -> float:
        """Less is better."""
        value = result.metrics[self.metric]
        return -value if self.goal == "max" else value

    def scores(self, trial: Trial) -> dict[int, float]:
        """A trial's scores by the units after which it had them."""
        return {r.units: self.score(r) for r in trial.results}

    def ranked(self, numbers: Iterable[int], units: int) -> list[int]:
        """Those that have a result at so many units, the best first; of equals the first to be drawn."""
        found = [(self.score(r), n) for n in numbers if (r := self.all[n].result_at(units)) is not None]
        return [n for _score, n in sorted(found)]

    @property
    def best(self) -> tuple[Trial, Result] | None:
        """The trial with the best result at any rung, and that result."""
        scores = [(self.score(r), t.number, -r.units) for t in self.all.values() for r in t.results]
        if not scores:
            return None
        _score, number, units = min(scores)
        trial = self.all[number]
        result = trial.result_at(-units)
        assert result is not None
        return trial, result
