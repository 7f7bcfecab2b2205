"""Figures like those of the Reshape paper: 6 to 11."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.reports.figure_style import colour, dash, drawing, save
from hocket.reports.mean_interval import mean_interval
from hocket.reproductions import Request, Results
from hocket.workloads.reshape import READINGS
from hocket_reproductions.reshape.run_result import ReshapeMoment, ReshapeRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOUR_S = 3600.0
Runs = dict[tuple[str, int], list[ReshapeRun]]  # (approach, workload) → its runs, by seed


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Makespan, JCT, pending and running jobs, GPU use, and add and remove events. Over time: the first seed."""
    files: list[Path] = []
    for reading in READINGS:
        of_it = [(case, run) for case, run in results if case.settings["reading"] == reading]
        files += _drawn(of_it, folder / reading) if of_it else []
    return files


def _drawn(results: Results, folder: Path) -> list[Path]:
    runs: Runs = {}
    for case, played in results:
        runs.setdefault((case.label, played.workload), []).append(played)
    labels = list(dict.fromkeys(label for label, _number in runs))
    files: list[Path] = []
    with drawing() as figure:
        sheet = figure((10.5, 3.8))
        left, right = sheet.subplots(1, 2)
        _bars(left, runs, labels, "Makespan", lambda p: p.makespan_s)
        _bars(right, runs, labels, "Mean job completion time", lambda p: p.jct_mean_s)
        files += save(sheet, folder, "figure-6-makespan-jct")
        first = {label: runs[label, 1][0] for label in labels}
        sheet = figure((10.5, 3.8))
        left, right = sheet.subplots(1, 2)
        _over_time(left, first, "Pending jobs, workload 1", lambda m: m.pending)
        _over_time(right, first, "Running jobs, workload 1", lambda m: m.running)
        files += save(sheet, folder, "figure-7-pending-running")
        sheet = figure((6.4, 3.8))
        _at_submissions(sheet.add_subplot(), first)
        files += save(sheet, folder, "figure-8-pending-at-submission")
        sheet = figure((10.5, 3.8))
        for axes, number in zip(sheet.subplots(1, 2), (1, 2), strict=True):
            _distribution(axes, {label: runs[label, number] for label in labels}, number)
        files += save(sheet, folder, "figure-9-jct")
        sheet = figure((7.6, 3.8))
        _over_time(sheet.add_subplot(), first, "GPUs in use, workload 1", lambda m: m.gpus)
        files += save(sheet, folder, "figure-10-gpus")
        sheet = figure((7.6, 3.8))
        _events(sheet.add_subplot(), first)
        files += save(sheet, folder, "figure-11-events")
    return files


def _bars(axes: Axes, runs: Runs, labels: Sequence[str], title: str, value: Callable[[ReshapeRun], float]) -> None:
    numbers = sorted({number for _label, number in runs})
    width = 0.8 / len(labels)
    for n, label in enumerate(labels):
        found = [mean_interval([value(p) / _HOUR_S for p in runs[label, number]]) for number in numbers]
        axes.bar(
            [i + (n - (len(labels) - 1) / 2) * width for i in range(len(numbers))],
            [s.mean if s is not None else 0.0 for s in found],
            width,
            yerr=[(s.half_width or 0.0) if s is not None else 0.0 for s in found],
            color=colour(n),
            label=label,
            ecolor="#555555",
            capsize=2,
        )
    axes.set_xticks(range(len(numbers)), [f"workload {number}" for number in numbers])
    axes.set_title(title, loc="left")
    axes.set_ylabel("hours (mean and 95 % interval)")
    axes.legend()


def _over_time(axes: Axes, first: dict[str, ReshapeRun], title: str, value: Callable[[ReshapeMoment], int]) -> None:
    for n, (label, played) in enumerate(first.items()):
        times = [m.at_s / _HOUR_S for m in played.moments]
        values = [value(m) for m in played.moments]
        axes.step(times, values, where="post", color=colour(n), linestyle=dash(n), label=label, linewidth=1.3)
    axes.set_title(title, loc="left")
    axes.set_xlabel("hours since the first submission")
    axes.set_ylim(bottom=0)
    axes.legend()


def _at_submissions(axes: Axes, first: dict[str, ReshapeRun]) -> None:
    for n, (label, played) in enumerate(first.items()):
        pending = [m.pending for m in played.moments for _ in range(m.submitted)]
        axes.plot(range(1, len(pending) + 1), pending, color=colour(n), marker=".", label=label)
    axes.set_title("Pending jobs when each job is submitted, workload 1", loc="left")
    axes.set_xlabel("job")
    axes.legend()


def _distribution(axes: Axes, runs: dict[str, list[ReshapeRun]], number: int) -> None:
    for n, (label, several) in enumerate(runs.items()):
        times = sorted(t / _HOUR_S for played in several for t in played.jcts_s)
        axes.plot(times, [(i + 1) / len(times) for i in range(len(times))], color=colour(n), label=label)
    axes.set_title(f"Job completion time, workload {number}", loc="left")
    axes.set_xlabel("hours")
    axes.set_ylabel("share of jobs, all seeds")
    axes.legend(loc="lower right")


def _events(axes: Axes, first: dict[str, ReshapeRun]) -> None:
    for n, (label, played) in enumerate(first.items()):
        for sign, name, style in ((1, "added", "-"), (-1, "removed", "--")):
            times = [0.0, *(a.at_s / _HOUR_S for a in played.adjustments if a.gpus * sign > 0)]
            if len(times) > 1:
                axes.step(
                    times, range(len(times)), where="post", color=colour(n), linestyle=style, label=f"{label}, {name}"
                )
    axes.set_title("GPUs added and removed, workload 1", loc="left")
    axes.set_xlabel("hours since the first submission")
    axes.set_ylabel("events so far")
    axes.legend()
