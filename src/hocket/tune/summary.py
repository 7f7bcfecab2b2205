"""What a controller is told of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

from hocket.model.criterion import Steps
from hocket.model.study_summary import MOST_TRIALS, Hyperparameter, Importance, StudySummary, TrialSummary
from hocket.tune.brackets import total_units
from hocket.tune.outcome import StudyOutcome
from hocket.tune.space import Choice, Domain, LogUniform, RandInt, Uniform
from hocket.tune.trials import Trial

_LEAST = 4  # trials that are compared, before anything is said of what matters
_LONGEST = 500  # characters of a text


def summary_of(
    outcome: StudyOutcome, state: Literal["running", "paused", "done", "failed"], job_name: Callable[[int], str]
) -> StudySummary:
    """The study as it stands; `job_name` is the job that a trial is now, empty if trials are models in one process."""
    of, best = outcome.definition, outcome.best
    told = _told(outcome)
    return StudySummary(
        of.name, state, _search(outcome), of.metric, "max" if of.goal == "max" else "min",
        str(Steps(of.unit_steps)) if of.jobs is None else of.jobs.unit, of.search.units, outcome.steps / of.unit_steps,
        total_units(outcome.brackets), outcome.seconds,
        [] if isinstance(of.space, str) else [_axis(name, domain) for name, domain in of.space.items()],
        [_trial(trial, of.metric, job_name) for trial in told], len(outcome.trials) - len(told),
        None if best is None else best.number, importance(outcome),
    )  # fmt: skip


def importance(outcome: StudyOutcome) -> Importance | None:
    """Which hyperparameters matter; None without Optuna, or with too few results.

    Results after a different number of units cannot be compared, so it is that number which most trials have reached.
    """
    reached = Counter(r.units for t in outcome.trials for r in t.results)
    if find_spec("optuna") is None or not reached:
        return None
    units, trials = max(reached.items(), key=lambda found: (found[1], found[0]))
    if trials < _LEAST:
        return None
    names = {name for trial in outcome.trials for name in trial.config}
    if len(names) == 1:  # What works it out for several takes seconds to import.
        metrics = {r.metrics[outcome.definition.metric] for t in outcome.trials for r in t.results if r.units == units}
        return Importance(dict.fromkeys(names, 1.0), units, trials) if len(metrics) > 1 else None
    from hocket.tune.optuna_support import importances

    shares = importances(outcome, units)
    return Importance(shares, units, trials) if shares else None


def _search(outcome: StudyOutcome) -> str:
    of = outcome.definition
    return f"{type(of.search).__struct_config__.tag}, configurations by {of.sampler}"


def _told(outcome: StudyOutcome) -> list[Trial]:
    """All trials; of too many the best half, and of the others the last."""
    trials = outcome.trials
    if len(trials) <= MOST_TRIALS:
        return trials
    scored = [(min(outcome.found.scores(t).values()), t.number) for t in trials if t.results]
    chosen = {number for _score, number in sorted(scored)[: MOST_TRIALS // 2]}
    others = [t.number for t in trials if t.number not in chosen]
    chosen.update(others[len(chosen) - MOST_TRIALS :])
    return [t for t in trials if t.number in chosen]


def _trial(trial: Trial, metric: str, job_name: Callable[[int], str]) -> TrialSummary:
    results = [(r.units, r.metrics[metric]) for r in trial.results]
    return TrialSummary(
        trial.number, job_name(trial.number), trial.config, results[-200:], trial.asked, trial.failed[:_LONGEST]
    )


def _axis(name: str, domain: Domain) -> Hyperparameter:
    match domain:
        case Choice(values):
            return Hyperparameter(name, "choice", values=list(values[:_LONGEST]))
        case Uniform(low, high):
            return Hyperparameter(name, "uniform", low, high)
        case LogUniform(low, high):
            return Hyperparameter(name, "loguniform", low, high)
        case RandInt(low, high):
            return Hyperparameter(name, "randint", low, high)
