"""A row of named values (a JSON object, a line of a CSV file, TensorBoard's step): which count, which are metrics."""

from __future__ import annotations

from hocket.agent.progress.numbers import metric_name

STEPS = frozenset({"step", "steps", "global_step", "iter", "iters", "iteration", "iterations", "batch", "batch_idx"})
MOST_METRICS = 200  # in one row

_PHASES = frozenset({"train", "training", "val", "valid", "validation", "test", "eval", "evaluation", "dev"})
_EVALUATIONS = _PHASES - {"train", "training"}
_NO_METRICS = frozenset({"epoch", "epochs", "time", "timestamp", "ts", "wall_time", "elapsed", "datetime", "date"})
_TO_UNDERSCORES = str.maketrans("/.- ", "____")


class Row:
    """What one row says of an epoch."""

    __slots__ = ("count", "evaluates", "metrics", "within")

    def __init__(self, values: dict[str, float], counter: str) -> None:
        """The counter may stand below others (`train/epoch`). A row that names a step beside the epoch, and nothing of
        an evaluation, stands within the epoch; all others are of its end.
        """
        self.count: float | None = None
        self.metrics: dict[str, float] = {}
        names_step = False
        for name, value in values.items():
            last = name.rpartition("/")[2].strip().lower()
            if last == counter:
                self.count = value if self.count is None else self.count
            elif last in STEPS:
                names_step = True
            elif last not in _NO_METRICS and len(self.metrics) < MOST_METRICS and (known_as := metric_name(name)):
                self.metrics[known_as] = value
        self.evaluates = any(map(is_evaluation, self.metrics))
        self.within = names_step and not self.evaluates


def has_phase(name: str) -> bool:
    """Whether a metric says what it was measured on."""
    return not _PHASES.isdisjoint(name.translate(_TO_UNDERSCORES).split("_"))


def is_evaluation(name: str) -> bool:
    """Whether a metric was measured on other data than was trained on: that happens at an epoch's end."""
    return not _EVALUATIONS.isdisjoint(name.lower().translate(_TO_UNDERSCORES).split("_"))
