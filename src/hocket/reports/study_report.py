"""A hyperparameter study as `hocket tune` reports it: JSON, tables and plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hocket.executors.inprocess.model_factory import ALONE_S, OTHERS, STEP_S
from hocket.reports.figure_style import colour, drawing, save
from hocket.reports.formatting import format_number
from hocket.tune.outcome import StudyOutcome
from hocket.tune.space import LogUniform
from hocket.tune.trials import Result, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

_SHOWN = 10  # trials in a table


class PackSpeedup(Struct, frozen=True):
    """How many times as fast a pack trained as its models one after another, over one stage of training."""

    trial: int
    models: float
    gain: float


def pack_speedups(outcome: StudyOutcome) -> Iterator[PackSpeedup]:
    """For every stage whose models were also measured one after another."""
    for trial in outcome.trials:
        for result in trial.results:
            metrics = result.metrics
            if metrics.get(STEP_S) and metrics.get(ALONE_S):
                models = metrics[OTHERS] + 1
                yield PackSpeedup(trial.number, models, metrics[ALONE_S] * models / metrics[STEP_S])


def study_as_dict(outcome: StudyOutcome) -> dict[str, Any]:
    """All of it as plain data."""
    of, best, result = outcome.definition, outcome.best, outcome.best_result
    return {
        "study": of.name,
        "search": msgspec.to_builtins(of.search),
        **(_of_packs(outcome) if of.jobs is None else {"unit": of.jobs.unit, "command": of.jobs.command}),
        "seed": of.seed,
        "metric": of.metric,
        "goal": of.goal,
        "trials": len(outcome.trials),
        "failed": sum(bool(t.failed) for t in outcome.trials),
        "steps" if of.jobs is None else "units": outcome.steps,
        "seconds": outcome.seconds,
        "best": None if best is None or result is None else _trial(best, result),
        "results": [_trial(t, r) for t in outcome.trials for r in t.results],
        "failures": {t.number: t.failed for t in outcome.trials if t.failed},
    }


def _of_packs(outcome: StudyOutcome) -> dict[str, Any]:
    """What there is only where models are trained in one process."""
    found, of = list(pack_speedups(outcome)), outcome.definition
    return {
        "unit_steps": of.unit_steps,
        "policy": outcome.policy,
        "device": of.device,
        "models_in_a_pack": _mean([_models(r) for t in outcome.trials for r in t.results]),
        "gain": _mean([g.gain for g in found]),
    }


def _trial(trial: Trial, result: Result) -> dict[str, Any]:
    return {"trial": trial.number, "config": trial.config, "units": result.units, "metrics": result.metrics}


def _models(result: Result) -> float:
    return result.metrics.get(OTHERS, 0.0) + 1


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def rung_table(outcome: StudyOutcome) -> Table:
    """For each rung: the number of trials, their units, how many failed, and the best value."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    of, found = outcome.definition, outcome.found
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for title in ("bracket", "units", "trials", "failed", f"best {of.metric}", "trial"):
        table.add_column(title, justify="right")
    for number, bracket in enumerate(outcome.brackets):
        for rung in bracket.rungs:
            there = [t for n in bracket.numbers if (t := found.all.get(n)) is not None and t.asked >= rung.units]
            ranked = found.ranked([t.number for t in there], rung.units)
            best = found.all[ranked[0]].result_at(rung.units) if ranked else None
            failed = sum(bool(t.failed) and t.asked == rung.units for t in there)
            table.add_row(
                str(number), str(rung.units), str(len(there)), str(failed or ""),
                format_number(best.metrics[of.metric]) if best is not None else "–", str(ranked[0]) if ranked else "–",
            )  # fmt: skip
    return table


def trial_table(outcome: StudyOutcome) -> Table:
    """The best trials, each at its best."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    of, found = outcome.definition, outcome.found
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    names = list(dict.fromkeys(name for t in outcome.trials for name in t.config))
    for title in ("trial", of.metric, "units", *names):
        table.add_column(title, justify="right")

    def best_of(trial: Trial) -> float:
        return min(found.scores(trial).values())

    for trial in sorted((t for t in outcome.trials if t.results), key=lambda t: (best_of(t), t.number))[:_SHOWN]:
        result = min(trial.results, key=lambda r: (found.score(r), r.units))
        values = [_written(trial.config[n]) if n in trial.config else "" for n in names]
        row = [str(trial.number), format_number(result.metrics[of.metric]), str(result.units), *values]
        table.add_row(*map(Text, row))
    return table


def _written(value: object) -> str:
    return format_number(value) if isinstance(value, float) else str(value)


def plot_study(outcome: StudyOutcome, folder: Path) -> list[Path]:
    """Draw curves and configurations, and for models in packs how much faster they were. Returns the files."""
    files: list[Path] = []
    brackets = outcome.brackets
    with drawing() as figure:
        sheet = figure((3.2 * max(len(brackets), 2), 3.6))
        panels = sheet.subplots(1, len(brackets), sharey=True, squeeze=False)[0]
        for number, axes in enumerate(panels):
            _curves(axes, outcome, number)
        files += save(sheet, folder, "curves")
        sheet = figure((8.6, 4.2))
        _coordinates(sheet.add_subplot(), outcome)
        files += save(sheet, folder, "parallel")
        if outcome.definition.jobs is None:
            sheet = figure((5.6, 3.8))
            _gains(sheet.add_subplot(), outcome)
            files += save(sheet, folder, "gain")
    return files


def _curves(axes: Axes, outcome: StudyOutcome, number: int) -> None:
    """A line for each trial of a bracket, from rung to rung; the study's best stands out."""
    of, bracket = outcome.definition, outcome.brackets[number]
    best = outcome.best
    for n in bracket.numbers:
        trial = outcome.found.all.get(n)
        if trial is None or not trial.results:
            continue
        units = [r.units for r in trial.results]
        values = [r.metrics[of.metric] for r in trial.results]
        is_best = best is not None and n == best.number
        axes.plot(
            units, values, marker="o", markersize=5 if is_best else 2.5, linewidth=2.2 if is_best else 0.8,
            color=colour(5) if is_best else colour(0), alpha=1.0 if is_best else 0.45, zorder=3 if is_best else 2,
        )  # fmt: skip
    axes.set_title(f"Bracket {number}: {len(bracket.numbers)} trials", loc="left")
    axes.set_xscale("log", base=2)
    axes.set_xticks([r.units for r in bracket.rungs], [str(r.units) for r in bracket.rungs])
    axes.minorticks_off()
    axes.set_xlabel(f"units of {of.unit_steps} steps" if of.jobs is None else f"units of {of.jobs.unit}")
    if not number:
        axes.set_ylabel(of.metric)


def _coordinates(axes: Axes, outcome: StudyOutcome) -> None:
    """A line for each trial through its values; the better, the darker."""
    of, found = outcome.definition, outcome.found
    trials = [t for t in outcome.trials if t.results]
    names = list(dict.fromkeys(name for t in trials for name in t.config))
    axes.set_title("Configurations: darker is better", loc="left")
    if not trials:
        return
    ranked = sorted(trials, key=lambda t: min(found.scores(t).values()))
    columns = [_scaled([t.config.get(name) for t in ranked], _is_log(outcome, name)) for name in names]
    columns.append(_scaled([max(r.metrics[of.metric] for r in t.results) if of.goal == "max"
                            else min(r.metrics[of.metric] for r in t.results) for t in ranked], False))  # fmt: skip
    for place in range(len(ranked) - 1, -1, -1):
        share = 1 - place / max(len(ranked) - 1, 1)
        line = [column[0][place] for column in columns]
        axes.plot(range(len(line)), line, color=colour(0), alpha=0.08 + 0.85 * share**3, linewidth=0.7 + 1.3 * share**3)
    for x, (_places, ticks) in enumerate(columns):
        for y, text in ticks:
            axes.annotate(text, (x, y), (4, 0), textcoords="offset points", fontsize=7.5, va="center", color="#333333")
    axes.set_xticks(range(len(columns)), [*names, of.metric])
    axes.set_yticks([])
    axes.grid(axis="x")


def _scaled(values: Sequence[Any], is_log: bool) -> tuple[list[float], list[tuple[float, str]]]:
    """Values on a line from 0 to 1, and its labels: numbers by size, anything else by name."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        kinds = sorted({str(v) for v in values})
        step = 1 / max(len(kinds) - 1, 1)
        return [kinds.index(str(v)) * step for v in values], [(i * step, kind) for i, kind in enumerate(kinds)]
    low, high = min(numbers), max(numbers)

    def place(v: float) -> float:
        if high == low:
            return 0.5
        return (log(v) - log(low)) / (log(high) - log(low)) if is_log else (v - low) / (high - low)

    shown = sorted(set(numbers)) if len(set(numbers)) <= 6 else [low, high]
    return [place(v) for v in numbers], [(place(v), f"{v:.3g}") for v in shown]


def _is_log(outcome: StudyOutcome, name: str) -> bool:
    space = outcome.definition.space
    return not isinstance(space, str) and isinstance(space.get(name), LogUniform)


def _gains(axes: Axes, outcome: StudyOutcome) -> None:
    """Each stage of training by the models in its pack: how many times as fast as one after another."""
    found = list(pack_speedups(outcome))
    axes.set_title("Speed-up by packing", loc="left")
    axes.set_xlabel("models in the pack, on average")
    axes.set_ylabel("times as fast as one after another")
    axes.axhline(1.0, color="#888888", linewidth=1)
    if not found:
        axes.annotate("no pack was compared with single models", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return
    axes.plot([g.models for g in found], [g.gain for g in found], "o", color=colour(0), alpha=0.5, markersize=5)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
