"""Figures like those of the Pack chapter: 2.4, 2.5 and 2.6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hocket.reports.figure_style import colour, drawing, save
from hocket.reproductions import Request, Results
from hocket_reproductions.pack.cases import PackResult, StepTimes


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """StepTimes time saved by number and batch, peak memory, and the factors of Table 2.2."""
    by_model: dict[str, PackResult] = {}
    for case, measured in results:
        if case.label == "steps":
            by_model.setdefault(case.settings["model"], measured)
    ablation = [row for case, m in results if case.label == "ablation" for row in m.ablation if not row.error]
    files: list[Path] = []
    with drawing() as figure:
        if by_model:
            sheet = figure((10.5, 3.8))
            left, right = sheet.subplots(1, 2, sharey=True)
            for number, (model, measured) in enumerate(by_model.items()):
                _line(left, [(len(r.models), r) for r in measured.by_count], number, model)
                _line(right, [(r.batches[0], r) for r in measured.by_batch], number, model)
            for axes, title in ((left, "packed models"), (right, "batch, two models packed")):
                axes.axhline(0, color="grey", linewidth=0.8)
                axes.set_xlabel(title)
            left.set_ylabel("step time saved, %")
            left.legend()
            files += save(sheet, folder, "figure-2.4-improvement")
            sheet = figure((8.6, 3.8))
            _peaks(sheet.add_subplot(), by_model)
            files += save(sheet, folder, "figure-2.5-memory")
        if ablation:
            factors = list(ablation[0].factors)
            sheet = figure((3.4 * len(factors), 6.4))
            for row, level in enumerate((True, False)):
                for column, factor in enumerate(factors):
                    axes = sheet.add_subplot(2, len(factors), 1 + column + row * len(factors))
                    _factor(axes, [s for s in ablation if s.factors[factor] is level])
                    axes.set_title(factor if level else f"not: {factor}")
            files += save(sheet, folder, "figure-2.6-ablation")
    return files


def _line(axes: Any, points: list[tuple[int, StepTimes]], number: int, model: str) -> None:
    good = [(x, 100 * row.improvement) for x, row in points if not row.error]
    axes.plot([x for x, _ in good], [y for _, y in good], marker="o", color=colour(number), label=model)


def _peaks(axes: Any, by_model: dict[str, PackResult]) -> None:
    labels: list[str] = []
    for number, (model, measured) in enumerate(by_model.items()):
        for peak in measured.peaks:
            seen = peak.predicted_mib if peak.seen_mib is None else peak.seen_mib
            axes.bar(len(labels), seen / 1024, color=colour(number), alpha=0.6 if peak.models > 1 else 1.0)
            axes.plot([len(labels)], [peak.predicted_mib / 1024], marker="_", markersize=9, color="black")
            labels.append(f"{model} × {peak.models}, {peak.batch}")
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=6)
    axes.set_ylabel("peak memory, GiB (line: predicted)")
    axes.set_yscale("log")


def _factor(axes: Any, rows: list[StepTimes]) -> None:
    """As the paper draws it: below the diagonal packing pays."""
    for marker, hue, pays in (("^", "tab:green", True), ("v", "tab:red", False)):
        some = [r for r in rows if (r.packed_s <= r.sequential_s) is pays]
        axes.scatter(
            [1e3 * r.sequential_s for r in some], [1e3 * r.packed_s for r in some], marker=marker, color=hue, s=14
        )
    if rows:
        ends = [1e3 * f(r.sequential_s for r in rows) for f in (min, max)]
        axes.plot(ends, ends, color="grey", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("T_s(Seq), ms")
    axes.set_ylabel("T_s(Pack), ms")
