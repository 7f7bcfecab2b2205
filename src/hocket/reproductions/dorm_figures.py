"""Figures like those of the Dorm paper: 6 to 9."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.reports.palette import colour, dash
from hocket.reports.sheets import drawing, save
from hocket.reports.spread import spread
from hocket.reproductions.dorm_result import DAY_S, Moment, Played
from hocket.reproductions.reproduction import Request, Results
from hocket.workloads.dorm import TYPES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOUR_S = 3600.0
_BASELINE = "swarm"


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Utilisation, fairness loss and adjustments over the first seed's day; speed-up by type over all seeds."""
    runs: dict[str, list[Played]] = {}
    for case, played in results:
        runs.setdefault(case.label, []).append(played)
    first = {label: found[0] for label, found in runs.items()}
    files: list[Path] = []
    with drawing() as figure:
        for name, title, value in (
            ("figure-6-utilisation", "Resource utilisation, sum of three resources", lambda m: m.utilisation),
            ("figure-7-fairness-loss", "Fairness loss", lambda m: m.loss),
        ):
            sheet = figure((7.6, 3.8))
            _over_time(sheet.add_subplot(), first, title, value)
            files += save(sheet, folder, name)
        sheet = figure((7.6, 3.8))
        _adjustments(sheet.add_subplot(), {k: v for k, v in first.items() if k != _BASELINE})
        files += save(sheet, folder, "figure-8-adjustments")
        sheet = figure((7.6, 3.8))
        _speed_ups(sheet.add_subplot(), runs)
        files += save(sheet, folder, "figure-9-speed-up")
    return files


def _over_time(axes: Axes, first: dict[str, Played], title: str, value: Callable[[Moment], float]) -> None:
    for n, (label, played) in enumerate(first.items()):
        moments = [m for m in played.moments if m.at_s <= DAY_S]
        axes.step(
            [m.at_s / _HOUR_S for m in moments], [value(m) for m in moments], where="post", color=colour(n),
            linestyle=dash(n), label=label,
        )  # fmt: skip
    axes.set_title(title, loc="left")
    axes.set_xlabel("hours")
    axes.set_ylim(bottom=0)
    axes.legend()


def _adjustments(axes: Axes, first: dict[str, Played]) -> None:
    for n, (label, played) in enumerate(first.items()):
        moments = [m for m in played.moments if m.at_s <= DAY_S]
        axes.step(
            [m.at_s / _HOUR_S for m in moments], list(accumulate(m.adjusted for m in moments)), where="post",
            color=colour(n), linestyle=dash(n), label=label,
        )  # fmt: skip
    axes.set_title("Applications killed and resumed, in all", loc="left")
    axes.set_xlabel("hours")
    axes.set_ylim(bottom=0)
    axes.legend()


def _speed_ups(axes: Axes, runs: dict[str, list[Played]]) -> None:
    labels = [label for label in runs if label != _BASELINE]
    width = 0.8 / len(labels)
    for n, label in enumerate(labels):
        found = [
            spread(
                [
                    theirs.jct_s[job] / ours.jct_s[job]
                    for ours, theirs in zip(runs[label], runs[_BASELINE], strict=True)
                    for job in ours.jct_s
                    if job.rpartition("-")[0] == kind.name and theirs.jct_s.get(job)
                ]
            )
            for kind in TYPES
        ]
        axes.bar(
            [i + (n - (len(labels) - 1) / 2) * width for i in range(len(TYPES))],
            [s.mean if s is not None else 0.0 for s in found], width,
            yerr=[(s.half_width or 0.0) if s is not None else 0.0 for s in found],
            color=colour(n), label=label, ecolor="#555555", capsize=2,
        )  # fmt: skip
    axes.set_xticks(range(len(TYPES)), [kind.name for kind in TYPES])
    axes.set_title("Speed-up against Swarm, from submission to end", loc="left")
    axes.set_ylabel("times (mean and 95 % interval)")
    axes.legend()
