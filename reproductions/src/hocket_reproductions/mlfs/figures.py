"""Figures like those of the MLFS paper: 4 to 9, with the paper's own values as far as its text has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.reports.figure_style import colour, dash, drawing, save
from hocket.reports.mean_interval import mean_interval
from hocket.reports.mlfs_run import MlfsRun
from hocket.reproductions import Request, Results
from hocket_reproductions.mlfs.findings import Runs, by_jobs, by_times
from hocket_reproductions.mlfs.paper_values import CONTRIBUTIONS, METRICS, Contribution, Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MINUTE_S = 60.0
_MARKS = "osv^D<>PX*"


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """All panels on 80 GPUs and on the trace, as far as they were run, and what each part brings."""
    small, large = by_jobs(results), by_times(results)
    files: list[Path] = []
    with drawing() as figure:
        for name, runs, title, has_paper in (
            ("figure-4-80-gpus", small, "jobs", True),
            ("figure-5-trace", large, "times each job of the trace comes", False),
        ):
            if not runs:
                continue
            sheet = figure((19.0, 8.0))
            panels = sheet.subplots(2, 5).flatten()
            at = max(runs, key=lambda n, runs=runs: (len(runs[n]), n))  # type: ignore[misc]
            _distribution(panels[0], runs[at], at)
            for axes, metric in zip(panels[1:], METRICS, strict=True):
                _metric(axes, runs, metric, title)
                if has_paper:
                    _paper(axes, runs, metric)
            handles, labels = panels[1].get_legend_handles_labels()
            sheet.legend(handles, labels, loc="outside lower center", ncols=len(labels))
            files += save(sheet, folder, name)
        for number in dict.fromkeys(p.figure for p in CONTRIBUTIONS):
            parts = [p for p in CONTRIBUTIONS if p.figure == number]
            if not any(p.without in found for p in parts for found in small.values()):
                continue
            sheet = figure((5.2 * len(parts), 3.8))
            for axes, part in zip(sheet.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
                _part(axes, small, part)
            files += save(sheet, folder, f"figure-{number}")
    return files


def _labels(runs: dict[float, Runs]) -> list[str]:
    return list(
        dict.fromkeys(
            label for found in runs.values() for label in found if not label.startswith("without") and "," not in label
        )
    )


def _distribution(axes: Axes, runs: Runs, at: float) -> None:
    labels = [label for label in runs if not label.startswith("without") and "," not in label]
    for n, label in enumerate(labels):
        # Quantiles are evenly apart, so that seeds of equally many jobs can be averaged.
        several = [p.jct_s for p in runs[label]]
        minutes = [sum(column) / len(column) / _MINUTE_S for column in zip(*several, strict=True)]
        shares = [i / (len(minutes) - 1) for i in range(len(minutes))]
        axes.plot(minutes, shares, color=colour(n), linestyle=dash(n), label=label, linewidth=1.3)
    axes.set_xscale("log")
    axes.set_title(f"(a) JCT, {at:,.0f} jobs" if at > 16 else f"(a) JCT, ×{at:g}", loc="left")
    axes.set_xlabel("minutes")
    axes.set_ylabel("share of jobs")


def _metric(axes: Axes, runs: dict[float, Runs], metric: Metric, title: str) -> None:
    for n, label in enumerate(_labels(runs)):
        sizes = [at for at, found in runs.items() if label in found]
        _line(axes, sizes, [runs[at][label] for at in sizes], metric.value, n, label)
    axes.set_title(f"({metric.panel}) {metric.name}", loc="left")
    axes.set_xlabel(title)
    axes.set_ylabel(metric.unit)
    axes.set_ylim(bottom=0)


def _paper(axes: Axes, runs: dict[float, Runs], metric: Metric) -> None:
    """What the paper's text says, as hollow marks: at the highest load, or at the lowest and the highest."""
    labels = _labels(runs)
    for label, said in metric.paper.items():
        values = [float(number) for number in re.findall(r"[\d.]+", said)]
        if label in labels:
            n = labels.index(label)
            axes.plot(
                [min(runs), max(runs)][-len(values) :], values, color=colour(n), linestyle="none",
                marker=_MARKS[n % len(_MARKS)], markersize=7, markerfacecolor="none",
            )  # fmt: skip
    if metric.paper:
        axes.annotate("hollow: the paper", (0.98, 0.02), xycoords="axes fraction", ha="right", fontsize=7)


def _line(
    axes: Axes, sizes: Sequence[float], runs: Sequence[Sequence[MlfsRun]], value: Callable[[MlfsRun], float], n: int,
    label: str,
) -> None:  # fmt: skip
    found = [mean_interval([value(p) for p in several]) for several in runs]
    axes.errorbar(
        list(sizes), [s.mean if s is not None else 0.0 for s in found],
        yerr=[(s.half_width or 0.0) if s is not None else 0.0 for s in found],
        color=colour(n), linestyle=dash(n), marker=_MARKS[n % len(_MARKS)], markersize=4, linewidth=1.3, capsize=2,
        label=label,
    )  # fmt: skip


def _part(axes: Axes, runs: dict[float, Runs], part: Contribution) -> None:
    for n, (label, name) in enumerate(((part.with_it, "with"), (part.without, "without"))):
        sizes = [at for at, found in runs.items() if label in found]
        _line(axes, sizes, [runs[at][label] for at in sizes], part.value, n, name)
    axes.set_title(f"{part.what}\n(the paper: {part.paper})", loc="left")
    axes.set_xlabel("jobs")
    axes.set_ylim(bottom=0)
    axes.legend()
