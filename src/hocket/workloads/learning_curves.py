"""Learning curves of simulated jobs: from parametric families with noise, or as Pollux measured them.

The families are among those with which learning curves are extrapolated (Domhan et al., IJCAI'15). Each says how much
of what is to be learned is still missing after x of all epochs:

    power        (1 + 50x)^-0.9
    exponential  2^-8x
    hill         1 / (1 + (12x)^1.5)

The loss is the missing part too, scaled between the model's first and last loss. Both have Gaussian noise, drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from random import Random

from msgspec import Struct

from hocket.model.curve import Curve, Point
from hocket.workloads.csv_table import read_table
from hocket.workloads.fields import TEXT, Number, Whole

FAMILIES: dict[str, Callable[[float], float]] = {
    "power": lambda x: (1 + 50 * x) ** -0.9,
    "exponential": lambda x: 2.0 ** (-8 * x),
    "hill": lambda x: 1 / (1 + (12 * x) ** 1.5),
}
VARIANTS = 32  # of a model's curves; jobs draw one of them, so that a hundred thousand jobs share a few
FALLING = ("deepspeech2", "yolov3")  # of the measured ones, in percent: an error rate


class Learner(Struct, frozen=True):
    """How a model learns."""

    family: str
    start: float  # accuracy before it learned anything
    final: float  # in the limit, on average
    spread: float = 0.03  # largest difference between the limits of two jobs
    first_loss: float = 2.5
    last_loss: float = 0.2
    noise: float = 0.004  # standard deviation, of the range


class Learning(Struct, frozen=True):
    """What one job learns."""

    accuracy: Curve
    loss: Curve

    @property
    def final(self) -> float:
        """Its accuracy after the last epoch."""
        return self.accuracy.points[-1].mean


@lru_cache(maxsize=4096)
def learning(learner: Learner, epochs: int, seed: int, variant: int) -> Learning:
    """One of a learner's curves."""
    rng = Random(f"{seed}/learning/{learner.family}/{learner.final}/{variant}")
    final = learner.final + rng.uniform(-learner.spread, learner.spread)
    missing = [FAMILIES[learner.family](e / epochs) for e in range(1, epochs + 1)]
    rise, fall = final - learner.start, learner.first_loss - learner.last_loss
    return Learning(
        by_epoch(round(final - rise * (m + rng.gauss(0.0, learner.noise)), 5) for m in missing),
        by_epoch(round(learner.last_loss + fall * (m + rng.gauss(0.0, learner.noise)), 5) for m in missing),
    )


def read_curves(path: str, metric: Number) -> list[tuple[str, int, tuple[float, ...]]]:
    """(application, batch size, values) of each run of a table; one with two sources counts once."""
    table = read_table(path, ("app", "batch_size", "metric"))
    apps, sizes = table.column("app", TEXT), table.column("batch_size", Whole(low=1))
    sources = table.column("source", TEXT) if "source" in table.cells else [""] * len(apps)
    runs: dict[tuple[str, str, int], list[float]] = {}
    for source, app, size, value in zip(sources, apps, sizes, table.column("metric", metric), strict=True):
        runs.setdefault((source, app, size), []).append(value)
    return list({(app, size, tuple(values)): None for (_source, app, size), values in runs.items()})


def read_learning(path: str, epochs: int) -> dict[str, tuple[Learning, ...]]:
    """Pollux's measured curves by application, one for each batch size, stretched to so many epochs.

    An error rate is converted to an accuracy (1 - error). No losses were measured: the error is used instead.
    """
    found: dict[str, list[Learning]] = {}
    for app, _size, values in read_curves(path, Number()):
        # The last epoch has the last value.
        at = [_accuracy(app, values[-(-(e + 1) * len(values) // epochs) - 1]) for e in range(epochs)]
        found.setdefault(app, []).append(Learning(by_epoch(at), by_epoch(round(1 - a, 6) for a in at)))
    return {app: tuple(curves) for app, curves in found.items()}


@lru_cache(maxsize=4)
def read_accuracies(path: str) -> dict[str, tuple[tuple[int, tuple[float, ...]], ...]]:
    """Pollux's measured curves by application: batch size and accuracy after each epoch, by ascending batch size."""
    found: dict[str, list[tuple[int, tuple[float, ...]]]] = {}
    for app, size, values in read_curves(path, Number()):
        found.setdefault(app, []).append((size, tuple(_accuracy(app, value) for value in values)))
    return {app: tuple(sorted(curves)) for app, curves in found.items()}


def _accuracy(app: str, metric: float) -> float:
    share = metric / 100 if metric > 1 else metric
    return round(1 - share if app in FALLING else share, 6)


MAX_EPOCHS = 10_000


def saturating(epochs: int, start: float, final: float, half_epochs: float) -> Curve:
    """Half of what is still missing to `final` comes in every `half_epochs`; falls when `final` is below."""
    missing = final - start
    return by_epoch(round(final - missing * 2 ** (-e / half_epochs), 6) for e in range(1, epochs + 1))


def by_epoch(values: Iterable[float]) -> Curve:
    """The metric after epoch 1, 2, …; the last value stays."""
    return Curve(tuple(Point(float(e), v) for e, v in enumerate(values, 1)))
