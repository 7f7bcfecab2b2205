"""The accuracy of an answer: what its intervals promise for all of its cells at once, or how little it still moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, SupportsFloat

from hocket.runtimes.query.answers import REPLICATES
from hocket.runtimes.query.statement import QueryError
from hocket.runtimes.query.student_t import quantile

Rows = Sequence[tuple[Any, ...]]
HalfWidths = Sequence[tuple[float | None, ...]]
WINDOW = 3  # answers of an envelope


class ColumnAccuracy:
    """One less the relative error of the columns: their weighted mean, or the worst."""

    def __init__(self, columns: tuple[str, ...], worst: bool, weights: Mapping[str, float]) -> None:
        """Raises QueryError for weights of columns that there are not."""
        for name, weight in weights.items():
            if name not in columns:
                raise QueryError(f"weight of '{name}': there is no such column; columns: {', '.join(columns)}")
            if not (isfinite(weight) and weight >= 0):
                raise QueryError(f"weight of '{name}' must be a number from 0 up, not {weight:g}")
        self._weights = [weights.get(name, 1.0) for name in columns]
        self._worst = worst

    def of(self, errors: Mapping[int, float]) -> float | None:
        """The accuracy, given each column's largest relative error by its number; None if none of them has a weight."""
        if self._worst:
            return 1.0 - max(errors.values())
        weight = sum(self._weights[n] for n in errors)
        return 1.0 - sum(self._weights[n] * error for n, error in errors.items()) / weight if weight else None


class IntervalAccuracy:
    """What intervals promise: the half width of each cell is its relative error.

    The statement is simultaneous (Bonferroni): over all cells, and over all answers at which it may be made.
    """

    def __init__(self, columns: ColumnAccuracy, bounded: Collection[int], confidence: float, answer_count: int) -> None:
        """`bounded` are the columns that have intervals, by number; `answer_count` leaves out the exact one."""
        self._columns, self._bounded, self._confidence, self._answer_count = columns, bounded, confidence, answer_count

    def of(self, rows: Rows, half_widths: HalfWidths) -> float | None:
        """What is promised of the columns; None if there are none, or a cell has no interval yet."""
        cells = len(rows) * len(self._bounded)
        if not cells or any(widths[n] is None for widths in half_widths for n in self._bounded):
            return None
        wider = self._quantile(cells * self._answer_count) / self._quantile(1)
        errors: dict[int, float] = {}
        for row, widths in zip(rows, half_widths, strict=True):
            for n, (value, width) in enumerate(zip(row, widths, strict=True)):
                if width is not None and n in self._bounded:
                    errors[n] = max(errors.get(n, 0.0), _largest_error(value, wider * width))
        return self._columns.of(errors)

    def _quantile(self, statements: int) -> float:
        return quantile(1 - (1 - self._confidence) / 2 / statements, REPLICATES - 1)


class EnvelopeAccuracy:
    """Rotary's rule: how little the estimates moved in the last answers, which promises nothing.

    Of each cell it is the smallest over the largest estimate in a window of answers. The paper leaves the length of
    the window open, and what counts of several groups; here it is the worst of them, as with intervals.
    """

    def __init__(self, columns: ColumnAccuracy, estimated: Collection[int], window: int = WINDOW) -> None:
        """`estimated` are the columns that are estimates, by number; the others name the groups."""
        self._columns, self._estimated, self._window = columns, sorted(estimated), window
        self._seen: list[dict[tuple[Any, ...], tuple[Any, ...]]] = []

    def of(self, rows: Rows, half_widths: HalfWidths) -> float | None:  # noqa: ARG002 - it does not look at intervals
        """The accuracy of the window that ends with this answer; None until it has enough answers."""
        groups = {tuple(v for n, v in enumerate(row) if n not in self._estimated): row for row in rows}
        self._seen = [*self._seen, groups][-self._window :]
        if len(self._seen) < self._window or not groups or not self._estimated:
            return None
        errors = dict.fromkeys(self._estimated, 0.0)
        for group in groups:
            for n in self._estimated:
                values = [answer[group][n] if group in answer else None for answer in self._seen]
                errors[n] = max(errors[n], 1.0 - _smallest_over_largest(values))
        return self._columns.of(errors)


def relative_error(value: Any, exact: Any) -> float:
    """How far a value is from the exact one, up to 1."""
    if value is None or exact is None:
        return 0.0 if value is exact else 1.0
    error, size = abs(float(value) - float(exact)), abs(float(exact))
    return 0.0 if error == 0 else min(1.0, error / size) if size else 1.0


def _smallest_over_largest(values: Sequence[Any]) -> float:
    """0 if they have not one sign, or are no numbers."""
    numbers = [float(v) for v in values if isinstance(v, SupportsFloat) and isfinite(v)]
    if len(numbers) < len(values):
        return 1.0 if all(v == values[0] for v in values) else 0.0
    if min(numbers) == max(numbers):
        return 1.0
    low, high = sorted((abs(min(numbers)), abs(max(numbers))))
    return low / high if min(numbers) > 0 or max(numbers) < 0 else 0.0


def _largest_error(value: Any, half_width: float) -> float:
    """The relative error of an estimate if the exact value is the end of its interval that is nearer to zero."""
    if half_width == 0:
        return 0.0
    if value is None or not isfinite(half_width):
        return 1.0
    least = abs(float(value)) - half_width
    return min(1.0, half_width / least) if least > 0 else 1.0
