"""Which weights of the reward to train with: Bayesian search, as MLFS does (section 3.4), over short trainings.

A trial trains for a few generations with its β. It is judged by the reward with the paper's β on the validation's
windows, which are of the training's weeks: what is reported is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.learn.reward import BETAS
from hocket.learn.training import LearningError, LearningState, TrainingSetup

RANGE = (0.05, 1.0)
SHORT = 8  # generations of a trial


class BetaTrial(Struct, frozen=True):
    """One trial: β, and the gain over MLF-H after a short training with it."""

    betas: tuple[float, ...]
    gain: float


def search_betas(
    setup: TrainingSetup, trials: int, train: Callable[[TrainingSetup, str], LearningState]
) -> tuple[TrainingSetup, list[BetaTrial]]:
    """The setup with the best β that was found, the paper's tried first; `train` trains with a setup, under a name."""
    try:
        import optuna
    except ImportError as error:
        raise LearningError("--search-betas needs Optuna: pip install 'hocket[optuna]'") from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=setup.seed))
    study.enqueue_trial({f"beta_{n + 1}": b for n, b in enumerate(BETAS)})
    found: list[BetaTrial] = []

    def objective(trial: Any) -> float:
        betas = tuple(trial.suggest_float(f"beta_{n + 1}", *RANGE) for n in range(len(BETAS)))
        short = replace(setup, betas=betas, generations=min(SHORT, setup.generations))
        gain = train(short, f"beta-{trial.number:02d}").best_gain
        found.append(BetaTrial(betas, gain))
        return gain

    study.optimize(objective, n_trials=trials)
    best = max(found, key=lambda t: t.gain)
    return replace(setup, betas=best.betas), found


def folder_of_trial(folder: Path, name: str) -> Path:
    """Where a trial's training is kept, so that a search that was cut off goes on."""
    return folder / "betas" / name
