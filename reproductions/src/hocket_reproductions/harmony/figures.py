"""Figures like those of the Harmony paper: 10 to 14."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hocket.reports.figure_style import colour, drawing, save
from hocket.reproductions import Request, Results
from hocket.workloads.harmony import READINGS
from hocket_reproductions.harmony.run_result import HarmonyRun

Runs = Mapping[tuple[str, str], Mapping[int, HarmonyRun]]  # by approach and one setting: its runs by seed


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Speed-ups over isolated, utilisation over time, groups, what errors cost and how large they are, and quality."""
    files: list[Path] = []
    for reading in READINGS:
        of_it = [(case, run) for case, run in results if case.settings.get("reading") == reading]
        files += _drawn(of_it, folder / reading) if of_it else []
    numbers: Mapping[str, float] = next((played.numbers for _case, played in results if played.numbers), {})
    if "printed_mean" in numbers:
        with drawing() as figure:
            sheet = figure((6.4, 3.8))
            _quality(sheet, numbers)
            files += save(sheet, folder, "figure-14-oracle")
    return files


def _drawn(results: Results, folder: Path) -> list[Path]:
    runs: dict[tuple[str, str], dict[int, HarmonyRun]] = {}
    for case, played in results:
        if "trace" not in case.settings:
            key = " ".join(str(v) for k, v in case.settings.items() if k != "reading")
            runs.setdefault((case.label, key), {})[case.seed] = played
    files: list[Path] = []
    with drawing() as figure:
        for name, size, draw in (
            ("figure-10-speed-up", (8.6, 3.8), _speed_ups),
            ("figure-11-utilisation", (10.5, 3.8), _use),
            ("figure-12-groups", (10.5, 3.8), _groups),
            ("figure-13-prediction", (10.5, 3.8), _prediction),
        ):
            sheet = figure(size)
            draw(sheet, runs)
            files += save(sheet, folder, name)
    return files


def _speed_ups(sheet: Any, runs: Runs) -> None:
    axes, base = sheet.add_subplot(), runs["isolated on 16", ""]
    labels = [label for label, key in runs if not key]
    for n, label in enumerate(labels):
        for k, of in enumerate(("jct_mean_s", "makespan_s")):
            ratios = [getattr(base.get(s, base[0]), of) / getattr(p, of) for s, p in runs[label, ""].items()]
            mean = sum(ratios) / len(ratios)
            off = [[mean - min(ratios)], [max(ratios) - mean]]
            axes.bar(n + 0.38 * k, mean, 0.36, yerr=off, color=colour(k), label=("JCT", "makespan")[k] if not n else "")
    axes.set_xticks([n + 0.19 for n in range(len(labels))], labels)
    axes.set_ylabel("times faster than isolated on 16 machines")
    axes.legend()


def _use(sheet: Any, runs: Runs) -> None:
    for side, of, title in zip(sheet.subplots(1, 2), ("cpu", "net"), ("CPU", "Network"), strict=True):
        for n, label in enumerate(("harmony", "isolated on 16", "isolated")):
            moments = min(runs[label, ""].items())[1].moments
            hours = [m.at_s / 3600 for m in moments]
            side.step(hours, [100 * getattr(m, of) for m in moments], where="post", color=colour(n), label=label)
        side.set_title(f"{title}, % of all machines")
        side.set_xlabel("hours")
        side.legend()


def _groups(sheet: Any, runs: Runs) -> None:
    for side, of, title in zip(sheet.subplots(1, 2), (0, 1), ("Machines of a group", "Jobs in a group"), strict=True):
        for n, key in enumerate(("", "compute", "communication")):
            values = sorted(g[of] for p in runs.get(("harmony", key), {}).values() for g in p.groups)
            if values:
                shares = [100 * (i + 1) / len(values) for i in range(len(values))]
                side.step(values, shares, where="post", color=colour(n), label=f"{key}-heavy" if key else "all jobs")
        side.set_title(title)
        side.set_ylabel("% of groups formed")
        if side.lines:
            side.legend()


def _prediction(sheet: Any, runs: Runs) -> None:
    cost, size = sheet.subplots(1, 2)
    exact = runs["harmony", ""]
    points = [(0.0, 100.0)]
    for (label, key), by_seed in runs.items():
        if label == "harmony" and key.startswith("noisy:"):
            kept = [100 * exact[s].makespan_s / p.makespan_s for s, p in by_seed.items() if s in exact]
            points.append((100 * float(key.removeprefix("noisy:")), sum(kept) / len(kept)))
    cost.plot(*zip(*sorted(points), strict=True), marker="o", color=colour(0))
    cost.set_xlabel("error of the phases told, %")
    cost.set_ylabel("speed kept, %")
    for n, (of, label) in enumerate((("errors", "foreseen"), ("plain_errors", "equation 1"))):
        values = [100 * e for p in exact.values() for e in getattr(p, of)]
        size.hist(values, bins=40, color=colour(n), alpha=0.6, label=label)
    size.set_xlabel("predicted over real round, less 1, in %")
    size.set_ylabel("groups formed")
    size.legend()


def _quality(sheet: Any, numbers: Mapping[str, float]) -> None:
    axes = sheet.add_subplot()
    for n, of in enumerate(("mean", "worst")):
        values = [100 * numbers[f"{which}_{of}"] for which in ("quality", "printed")]
        axes.bar([k + 0.38 * n for k in range(2)], values, 0.36, color=colour(n), label=of)
    axes.set_xticks([0.19, 1.19], ["ours", "as printed"])
    axes.set_ylabel("% of the exhaustive search")
    axes.legend()
