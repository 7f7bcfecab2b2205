"""The figure of a progressive query: how its estimates and their intervals went as more data were read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hocket.query import Answer
from hocket.reports.figure_style import colour, dash, drawing, save_as

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = 6  # columns
_LINES = 8  # rows of the answer


def plot_answers(answers: Sequence[Answer], path: Path) -> Path:
    """Draw a panel for each column that has intervals: estimates with their bands, against the part of data read."""
    last = answers[-1]
    shown = (last.bounded or _numbers(last))[:_PANELS]
    with drawing() as figure:
        across = min(2, max(1, len(shown)))
        down = max(1, -(-len(shown) // across))
        sheet = figure((1.2 + 4.6 * across, 0.8 + 3.0 * down))
        panels = list(sheet.subplots(down, across, squeeze=False).flat)
        for axes, column in zip(panels, shown, strict=False):
            _estimates(axes, answers, column)
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        left_out = len(last.rows) - _LINES
        sheet.suptitle(f"the first {_LINES} of {len(last.rows)} rows" if left_out > 0 else "", fontsize=9.5)
        return save_as(sheet, path)


def _estimates(axes: Axes, answers: Sequence[Answer], column: int) -> None:
    last = answers[-1]
    for n, row in enumerate(last.rows[:_LINES]):
        points = [(a, found) for a in answers if (found := _row_of(a, row)) is not None]
        points = [(a, at) for a, at in points if a.rows[at][column] is not None]
        x = [100 * a.fraction for a, _ in points]
        y = [float(a.rows[at][column]) for a, at in points]
        axes.plot(x, y, color=colour(n), linestyle=dash(n), marker="o", markersize=3, label=_name(last, row))
        banded = [
            (f, v, w) for f, v, (a, at) in zip(x, y, points, strict=True) if (w := _width(a, at, column)) is not None
        ]
        if banded:
            low, high = [v - w for _, v, w in banded], [v + w for _, v, w in banded]
            axes.fill_between([f for f, _, _ in banded], low, high, color=colour(n), alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    ticks = [100 * a.fraction for a in answers]
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("data read, %")
    axes.set_title(last.columns[column], loc="left")
    if len(last.rows) > 1:
        axes.legend(fontsize=7.5)


def _numbers(answer: Answer) -> tuple[int, ...]:
    return tuple(n for n, v in enumerate(answer.rows[0]) if isinstance(v, int | float)) if answer.rows else ()


def _group(answer: Answer, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a row is of: its columns before the first that has intervals."""
    return row[: min(answer.bounded, default=len(row))]


def _row_of(answer: Answer, row: tuple[Any, ...]) -> int | None:
    wanted = _group(answer, row)
    return next((n for n, other in enumerate(answer.rows) if _group(answer, other) == wanted), None)


def _width(answer: Answer, row: int, column: int) -> float | None:
    return 0.0 if answer.is_exact else answer.half_widths[row][column]


def _name(answer: Answer, row: tuple[Any, ...]) -> str:
    return ", ".join(map(str, _group(answer, row)))[:30] if answer.bounded else ""
