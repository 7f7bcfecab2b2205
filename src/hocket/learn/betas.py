"""Which weights of the reward to train with: Bayesian search, as MLFS does (section 3.4), over short trainings.

A trial trains for a few generations with its β. It is judged by the reward with the paper's β on the validation's
windows, which are of the training's weeks: what is reported is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hocket.learn.reward import BETAS
from hocket.learn.training import BetaTrial, LearningError, LearningState, TrainingSetup

RANGE = (0.05, 1.0)
SHORT = 5  # generations of a trial
_DIGITS = 3  # β of a trial: the reward does not tell more of them apart


def search_betas(
    setup: TrainingSetup, trials: int, train: Callable[[TrainingSetup, str], LearningState]
) -> TrainingSetup:
    """The setup with the best β that was found and with all trials; `train` trains with a setup, under a name.

    The paper's β are tried first. A third of the trials is drawn, the others follow from those before them.
    """
    try:
        import optuna
    except ImportError as error:
        raise LearningError("--search-betas needs Optuna: pip install 'hocket[optuna]'") from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=setup.seed, n_startup_trials=max(2, trials // 3))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({f"beta_{n + 1}": b for n, b in enumerate(BETAS)})
    found: list[BetaTrial] = []

    def objective(trial: Any) -> float:
        betas = tuple(round(trial.suggest_float(f"beta_{n + 1}", *RANGE), _DIGITS) for n in range(len(BETAS)))
        short = replace(setup, betas=betas, generations=min(SHORT, setup.generations))
        gain = train(short, f"beta-{trial.number:02d}").best_gain
        found.append(BetaTrial(betas, gain))
        return gain

    study.optimize(objective, n_trials=trials)
    best = max(found, key=lambda t: t.gain)
    return replace(setup, betas=best.betas, beta_trials=tuple(found))


def folder_of_trial(folder: Path, name: str) -> Path:
    """Where a trial's training is kept, so that a search that was cut off goes on."""
    return folder / "betas" / name
