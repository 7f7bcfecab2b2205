"""Search for good hyperparameters with many models in one training step.

    from hocket.tune import Hyperband, Study, choice, loguniform

    study = Study(training, {"rate": loguniform(1e-4, 1e-1), "batch_size": choice([16, 32, 64])},
                  evaluate=evaluate, metric="accuracy", goal="max", search=Hyperband(units=27), folder="digits")
    study.run()
    print(study.best.config, study.best_result.metrics)

`training(config)` gives a `hocket.pack.Training`, `evaluate(module, config)` a number.
"""

from hocket.tune.brackets import Asha, Hyperband, RandomSearch, SuccessiveHalving
from hocket.tune.definition import StudyError
from hocket.tune.outcome import StudyOutcome, read
from hocket.tune.space import SpaceError, choice, loguniform, randint, uniform
from hocket.tune.study import Study
from hocket.tune.trials import Result, Trial

__all__ = [
    "Asha",
    "Hyperband",
    "RandomSearch",
    "Result",
    "SpaceError",
    "Study",
    "StudyError",
    "StudyOutcome",
    "SuccessiveHalving",
    "Trial",
    "choice",
    "loguniform",
    "randint",
    "read",
    "uniform",
]  # fmt: skip
