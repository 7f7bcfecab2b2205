"""Optuna, an optional extra that is imported when used: its samplers give configurations, its storages take trials."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hocket.tune.definition import StudyError
from hocket.tune.outcome import StudyOutcome
from hocket.tune.space import Choice, Domain, Drawn, LogUniform, RandInt, Space, SpaceError, Uniform, Value, drawn
from hocket.tune.trials import Trial

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial


def require_optuna(what: str) -> None:
    """Say what needs it, if it is not installed."""
    if find_spec("optuna") is None:
        raise StudyError(f"{what} needs Optuna: pip install 'hocket[optuna]'")


def distribution(domain: Domain) -> BaseDistribution:
    """The values of a hyperparameter, in Optuna's words."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match domain:
        case Choice(values):
            return CategoricalDistribution(values)
        case Uniform(low, high):
            return FloatDistribution(low, high)
        case LogUniform(low, high):
            return FloatDistribution(low, high, log=True)
        case RandInt(low, high):
            return IntDistribution(low, high)


def frozen(trial: Trial, domains: Mapping[str, Domain], values: Mapping[int, float], is_complete: bool) -> FrozenTrial:
    """A trial that is over, with its values by units; one that was stopped early is pruned."""
    from optuna.trial import TrialState, create_trial

    state = TrialState.COMPLETE if is_complete else TrialState.PRUNED
    if trial.failed or not values:
        state = TrialState.FAIL
    return create_trial(
        state=state,
        value=None if state is TrialState.FAIL else values[max(values)],
        params=trial.config,
        distributions={name: distribution(domain) for name, domain in domains.items()},
        intermediate_values=dict(values),
        user_attrs={"failed": trial.failed} if trial.failed else {},
    )


def storage_for(name: str, url: str) -> BaseStorage:
    """An Optuna storage that has no study of this name yet; else it raises StudyError."""
    require_optuna(f"storage '{url}'")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = optuna.storages.get_storage(url)
        names = optuna.study.get_all_study_names(storage)
    except Exception as error:  # whatever the driver of that storage raises
        raise StudyError(f"storage '{url}' cannot be opened: {str(error).splitlines()[0]}") from error
    if name in names:
        raise StudyError(f"storage '{url}' has a study '{name}' already")
    return storage


def export(outcome: StudyOutcome, url: str) -> int:
    """Write a study's trials into an Optuna storage, under the study's name; says how many."""
    of = outcome.definition
    storage = storage_for(of.name, url)
    import optuna

    kinds = optuna.study.StudyDirection
    direction = kinds.MAXIMIZE if of.goal == "max" else kinds.MINIMIZE
    study = optuna.create_study(storage=storage, study_name=of.name, direction=direction)
    told = [t for t in outcome.trials if t.failed or t.results]
    for trial in told:
        values = {r.units: r.metrics[of.metric] for r in trial.results}
        is_complete = trial.units * of.unit_steps == of.most_steps
        study.add_trial(frozen(trial, _domains(outcome, trial), values, is_complete))
    return len(told)


def importances(outcome: StudyOutcome, units: int) -> dict[str, float]:
    """By PED-ANOVA: how much each hyperparameter matters for being among the best after so many units, the most first.

    Empty where nothing can be said: all results are the same, or no hyperparameter is one of all trials.
    """
    import optuna

    of = outcome.definition
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if of.goal == "max" else "minimize")
    for trial in outcome.trials:
        if (result := trial.result_at(units)) is not None:
            values = {units: result.metrics[of.metric]}
            study.add_trial(frozen(replace(trial, failed=""), _domains(outcome, trial), values, True))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    try:
        with warnings.catch_warnings():  # That it is new, and that trials may be alike, is nothing to tell a user.
            warnings.simplefilter("ignore")
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):
        return {}
    return {name: float(share) for name, share in found.items() if isfinite(share)}


def _domains(outcome: StudyOutcome, trial: Trial) -> dict[str, Domain]:
    """A function's hyperparameters are in no journal: of those only the values are known that were tried."""
    space = outcome.definition.space
    if not isinstance(space, str):
        return {name: space[name] for name in trial.config}
    tried: dict[str, list[Any]] = {}
    for other in outcome.trials:
        for name, value in other.config.items():
            tried.setdefault(name, []).append(value)
    return {name: _seen(list(dict.fromkeys(tried[name]))) for name in trial.config}


def _seen(values: list[Any]) -> Domain:
    """Fractions are taken for a range, all else for kinds."""
    if len(values) > 1 and all(isinstance(v, float) for v in values):
        return Uniform(min(values), max(values))
    return Choice(tuple(values))


class OptunaSampler:
    """Asks Optuna for each configuration, and tells it the trial's results once it is over."""

    def __init__(self, space: Space, sampler: str = "TPESampler", seed: int = 0, **options: Any) -> None:
        """`sampler`: the name of a class in `optuna.samplers`; options are its own."""
        require_optuna(f"sampler '{sampler}'")
        import optuna

        kind = getattr(optuna.samplers, sampler, None)
        if kind is None or not isinstance(kind, type):
            raise StudyError(f"sampler '{sampler}' is none of Optuna's")
        self._name, self._space = sampler, space
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            with warnings.catch_warnings():  # The user has chosen the sampler.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                made, tried = kind(seed=seed, **options), kind(seed=seed, **options)
        except TypeError as error:
            raise StudyError(f"sampler '{sampler}' cannot be made: {error}") from error
        self._draw(optuna.create_study(sampler=tried).ask())  # Before a study begins: some take no range of numbers.
        self._study: optuna.study.Study = optuna.create_study(sampler=made)  # It minimises: scores are less if better.
        self._asked: dict[int, optuna.trial.Trial] = {}

    def ask(self, number: int) -> Drawn:
        """The sampler's next configuration."""
        self._asked[number] = self._study.ask()
        return self._draw(self._asked[number])

    def _draw(self, asked: optuna.trial.Trial) -> Drawn:

        def decide(name: str, domain: Domain) -> Value:
            match domain:
                case Choice(values):
                    found: Value = asked.suggest_categorical(name, values)
                    return found
                case Uniform(low, high):
                    return asked.suggest_float(name, low, high)
                case LogUniform(low, high):
                    return asked.suggest_float(name, low, high, log=True)
                case RandInt(low, high):
                    return asked.suggest_int(name, low, high)

        try:
            return drawn(self._space, decide)
        except SpaceError:
            raise
        except Exception as error:  # whatever a sampler raises that does not take such a space
            said = (str(error).splitlines() or [""])[0]
            raise StudyError(f"sampler '{self._name}' cannot draw from the space: {said}") from error

    def tell(self, trial: Trial, scores: dict[int, float], is_complete: bool) -> None:
        """Report a trial's results. A trial that an earlier process asked for is added as a whole."""
        domains = drawn(self._space, lambda name, _domain: trial.config[name]).domains
        told = frozen(trial, domains, scores, is_complete)
        asked = self._asked.pop(trial.number, None)
        if asked is None:
            self._study.add_trial(told)
            return
        for units, score in scores.items():
            asked.report(score, units)
        self._study.tell(asked, told.value if is_complete else None, told.state)

    def __str__(self) -> str:
        return f"optuna {self._name}"
