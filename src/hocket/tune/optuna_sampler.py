"""Configurations from one of Optuna's samplers, by ask and tell. Optuna is an extra, and is imported when used."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from hocket.tune.definition import StudyError
from hocket.tune.optuna_trials import frozen, require_optuna
from hocket.tune.space import Choice, Domain, Drawn, LogUniform, RandInt, Space, SpaceError, Uniform, Value, drawn
from hocket.tune.trials import Trial

if TYPE_CHECKING:
    import optuna


class OptunaSampler:
    """Asks Optuna for each configuration, and tells it how the trial fared once that is over."""

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
            with warnings.catch_warnings():  # Who names a sampler has chosen it.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                made, tried = kind(seed=seed, **options), kind(seed=seed, **options)
        except TypeError as error:
            raise StudyError(f"sampler '{sampler}' cannot be made: {error}") from error
        self._draw(optuna.create_study(sampler=tried).ask())  # Before a study begins: some take no range of numbers.
        self._study: optuna.study.Study = optuna.create_study(sampler=made)  # It minimises: scores are less if better.
        self._asked: dict[int, optuna.trial.Trial] = {}

    def ask(self, number: int) -> Drawn:
        """What the sampler thinks is worth a try."""
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
        """A trial that another process asked for is told as a whole."""
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
