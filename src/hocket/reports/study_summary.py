"""A study in numbers: what `hocket tune --json` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from hocket.executors.inprocess.workshop import ALONE_S, OTHERS, STEP_S
from hocket.tune.outcome import Outcome
from hocket.tune.trials import Result, Trial


class Gain(Struct, frozen=True):
    """What a stretch of training gained by its company: its models' steps in turn, by the time of their common step."""

    trial: int
    models: float
    gain: float


def gains(outcome: Outcome) -> Iterator[Gain]:
    """Of every stretch whose models were also measured in turn."""
    for trial in outcome.trials:
        for result in trial.results:
            metrics = result.metrics
            if metrics.get(STEP_S) and metrics.get(ALONE_S):
                models = metrics[OTHERS] + 1
                yield Gain(trial.number, models, metrics[ALONE_S] * models / metrics[STEP_S])


def told(outcome: Outcome) -> dict[str, Any]:
    """All of it as plain data."""
    of, best, result = outcome.definition, outcome.best, outcome.best_result
    found = list(gains(outcome))
    return {
        "study": of.name,
        "search": msgspec.to_builtins(of.search),
        "unit_steps": of.unit_steps,
        "policy": outcome.policy,
        "device": of.device,
        "seed": of.seed,
        "metric": of.metric,
        "goal": of.goal,
        "trials": len(outcome.trials),
        "failed": sum(bool(t.failed) for t in outcome.trials),
        "steps": outcome.steps,
        "seconds": outcome.seconds,
        "models_in_a_pack": _mean([_models(r) for t in outcome.trials for r in t.results]),
        "gain": _mean([g.gain for g in found]),
        "best": None if best is None or result is None else _trial(best, result),
        "results": [_trial(t, r) for t in outcome.trials for r in t.results],
        "failures": {t.number: t.failed for t in outcome.trials if t.failed},
    }


def _trial(trial: Trial, result: Result) -> dict[str, Any]:
    return {"trial": trial.number, "config": trial.config, "units": result.units, "metrics": result.metrics}


def _models(result: Result) -> float:
    return result.metrics.get(OTHERS, 0.0) + 1


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
