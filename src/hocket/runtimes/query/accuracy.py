"""The accuracy of an answer: what its intervals promise for all of its cells at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from hocket.runtimes.query.answers import REPLICATES
from hocket.runtimes.query.statement import QueryError
from hocket.runtimes.query.student_t import quantile


class Accuracy:
    """One less the relative error: the largest of each column, and of the columns the weighted mean, or the worst.

    The statement is simultaneous (Bonferroni): over all cells, and over all answers at which it may be made.
    """

    def __init__(
        self, columns: tuple[str, ...], worst: bool, weights: Mapping[str, float], confidence: float, looks: int
    ) -> None:
        """Raises QueryError for weights of columns that there are not."""
        for name, weight in weights.items():
            if name not in columns:
                raise QueryError(f"weight of '{name}': there is no such column; columns: {', '.join(columns)}")
            if not (isfinite(weight) and weight >= 0):
                raise QueryError(f"weight of '{name}' must be a number from 0 up, not {weight:g}")
        self._weights = [weights.get(name, 1.0) for name in columns]
        self._worst, self._confidence, self._looks = worst, confidence, looks

    def of(
        self, rows: list[tuple[Any, ...]], half_widths: list[tuple[float | None, ...]], bounded: Collection[int]
    ) -> float | None:
        """What is promised of the `bounded` columns; None if there are none, or a cell has no interval yet."""
        cells = len(rows) * len(bounded)
        if not cells or any(widths[n] is None for widths in half_widths for n in bounded):
            return None
        wider = self._quantile(cells * self._looks) / self._quantile(1)
        errors: dict[int, float] = {}
        for row, widths in zip(rows, half_widths, strict=True):
            for n, (value, width) in enumerate(zip(row, widths, strict=True)):
                if width is not None and n in bounded:
                    errors[n] = max(errors.get(n, 0.0), _relative(value, wider * width))
        if self._worst:
            return 1.0 - max(errors.values())
        weight = sum(self._weights[n] for n in errors)
        return 1.0 - sum(self._weights[n] * error for n, error in errors.items()) / weight if weight else None

    def _quantile(self, statements: int) -> float:
        return quantile(1 - (1 - self._confidence) / 2 / statements, REPLICATES - 1)


def _relative(value: Any, half_width: float) -> float:
    if value is None or not isfinite(half_width):
        return 1.0
    if half_width == 0:
        return 0.0
    size = abs(float(value))
    return min(1.0, half_width / size) if size else 1.0
