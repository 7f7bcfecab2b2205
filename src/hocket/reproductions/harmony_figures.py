"""Figures like those of the Harmony paper: 10, 11 and 13."""

from __future__ import annotations

from pathlib import Path

from hocket.reports.palette import colour
from hocket.reports.sheets import drawing, save
from hocket.reproductions.harmony_result import Played
from hocket.reproductions.reproduction import Request, Results


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Speed-ups over isolated, utilisation over time, and how well rounds are predicted."""
    plain: dict[str, dict[int, Played]] = {}
    for case, played in results:
        if not case.settings and played.makespan_s:
            plain.setdefault(case.label, {})[case.seed] = played
    if "isolated" not in plain or "harmony" not in plain:
        return []
    files: list[Path] = []
    base = plain["isolated"]
    with drawing() as figure:
        sheet = figure((7.6, 3.8))
        axes = sheet.add_subplot()
        labels = list(plain)
        for n, label in enumerate(labels):
            runs = plain[label]
            for k, of in enumerate(("jct_mean_s", "makespan_s")):
                ratios = [getattr(base.get(s, base[0]), of) / getattr(p, of) for s, p in runs.items()]
                mean = sum(ratios) / len(ratios)
                off = [[mean - min(ratios)], [max(ratios) - mean]]
                axes.bar(
                    n + 0.38 * k, mean, 0.36, yerr=off, color=colour(k), label=("JCT", "makespan")[k] if not n else ""
                )
        axes.set_xticks([n + 0.19 for n in range(len(labels))], labels)
        axes.set_ylabel("times faster than isolated")
        axes.legend()
        files += save(sheet, folder, "figure-10-speed-up")
        sheet = figure((10.5, 3.8))
        for side, of, title in zip(sheet.subplots(1, 2), ("cpu", "net"), ("CPU", "Network"), strict=True):
            for n, label in enumerate(("harmony", "isolated")):
                moments = plain[label][0].moments
                hours = [m.at_s / 3600 for m in moments]
                side.step(hours, [100 * getattr(m, of) for m in moments], where="post", color=colour(n), label=label)
            side.set_title(f"{title}, % of all machines")
            side.set_xlabel("hours")
            side.legend()
        files += save(sheet, folder, "figure-11-utilisation")
        sheet = figure((6.4, 3.8))
        axes = sheet.add_subplot()
        axes.hist([100 * e for p in plain["harmony"].values() for e in p.errors], bins=40, color=colour(0))
        axes.set_xlabel("predicted over real round, less 1, in %")
        axes.set_ylabel("groups formed")
        files += save(sheet, folder, "figure-13-prediction")
    return files
