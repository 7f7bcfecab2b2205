"""How a metric grows with epochs, for simulated jobs that have no measured curve."""

from __future__ import annotations

from collections.abc import Iterable

from hocket.model.curve import Curve, Point

MAX_EPOCHS = 10_000


def saturating(epochs: int, start: float, final: float, half_epochs: float) -> Curve:
    """Half of what is still missing to `final` comes in every `half_epochs`; falls when `final` is below."""
    missing = final - start
    return by_epoch(round(final - missing * 2 ** (-e / half_epochs), 6) for e in range(1, epochs + 1))


def by_epoch(values: Iterable[float]) -> Curve:
    """The metric after epoch 1, 2, …; the last value stays."""
    return Curve(tuple(Point(float(e), v) for e, v in enumerate(values, 1)))
