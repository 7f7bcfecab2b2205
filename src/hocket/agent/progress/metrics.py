"""Numbers and metric names as people write them, and rows of them: a JSON object, a CSV line, a TensorBoard step."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.progress.epoch_counter import EpochCounter
    from hocket.agent.progress.reader import Report

STEPS = frozenset({"step", "steps", "global_step", "iter", "iters", "iteration", "iterations", "batch", "batch_idx"})
MOST_METRICS = 200  # in one row
STEP = "@step"  # as `hocket.report` writes a step

_PHASES = frozenset({"train", "training", "val", "valid", "validation", "test", "eval", "evaluation", "dev"})
_EVALUATIONS = _PHASES - {"train", "training"}
_NO_METRICS = frozenset({"epoch", "epochs", "time", "timestamp", "ts", "wall_time", "elapsed", "datetime", "date"})
_TO_UNDERSCORES = str.maketrans("/.- ", "____")


class Row:
    """What one row says of an epoch."""

    __slots__ = ("count", "evaluates", "metrics", "step", "within")

    def __init__(self, values: dict[str, float], counter: str) -> None:
        """The counter may stand below others (`train/epoch`). A row that names a step beside the epoch, and nothing of
        an evaluation, stands within the epoch; all others are of its end.
        """
        self.count: float | None = None
        self.step: float | None = None  # the first that it names
        self.metrics: dict[str, float] = {}
        for name, value in values.items():
            last = name.rpartition("/")[2].strip().lower()
            if last == counter:
                self.count = value if self.count is None else self.count
            elif last in STEPS:
                self.step = value if self.step is None else self.step
            elif last not in _NO_METRICS and len(self.metrics) < MOST_METRICS and (known_as := metric_name(name)):
                self.metrics[known_as] = value
        self.evaluates = any(map(is_evaluation, self.metrics))
        self.within = self.step is not None and not self.evaluates

    def told_to(self, epochs: EpochCounter) -> list[Report]:
        """What it reports: of its epoch, or if it names none, of its step."""
        count = epochs.current if self.count is None and self.step is not None and self.metrics else self.count
        reports = [] if count is None else epochs.said(count, self.metrics, self.within)
        if self.step is not None and (self.metrics or count is not None):
            reports += epochs.at_step(self.step, self.metrics)
        return reports


def has_phase(name: str) -> bool:
    """Whether a metric says what it was measured on."""
    return not _PHASES.isdisjoint(name.translate(_TO_UNDERSCORES).split("_"))


def is_evaluation(name: str) -> bool:
    """Whether a metric was measured on other data than was trained on: that happens at an epoch's end."""
    return not _EVALUATIONS.isdisjoint(name.lower().translate(_TO_UNDERSCORES).split("_"))


MAX_NAME = 100  # characters; a criterion can name no longer metric
MAX_NUMBER = 64  # characters

_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./@-")


def number(text: str) -> float | None:
    """The number that a text is, a percentage as a fraction; None if it is none. NaN and the infinities are numbers."""
    text = text.strip(" \t\r\n'\"")
    if len(text) > MAX_NUMBER:
        return None
    try:
        return float(text) if not text.endswith("%") else percentage(text[:-1])
    except ValueError:
        return None


def percentage(text: str) -> float:
    """So many hundredths. Scaled in decimal, so that 91.2 is 0.912 to the last bit; raises ValueError."""
    return (
        float(text) / 100
        if "e" in text or "E" in text or not text.strip()[-1:].isdigit()
        else float(f"{text.strip()}e-2")
    )


def metric_name(text: str) -> str:
    """A name that a criterion can hold: what it may not contain becomes `_`. Empty if nothing is left."""
    text = text.strip()[:MAX_NAME]
    if not (text.isascii() and text.isidentifier()):
        text = "".join(c if c in _IN_NAMES else "_" for c in text).strip("./@-")
        if text[:1].isdigit():
            text = f"_{text}"[:MAX_NAME]
    return text if text.strip("_") else ""
