"""A study as people read it: its rungs, and the best of its trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.reports.duration import digits
from hocket.tune.outcome import Outcome
from hocket.tune.trials import Trial

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = 10  # trials


def rung_table(outcome: Outcome) -> Table:
    """Of each rung: how many trials, how far, how many failed, and the best value."""
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
                digits(best.metrics[of.metric]) if best is not None else "–", str(ranked[0]) if ranked else "–",
            )  # fmt: skip
    return table


def trial_table(outcome: Outcome) -> Table:
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
        row = [str(trial.number), digits(result.metrics[of.metric]), str(result.units), *values]
        table.add_row(*map(Text, row))
    return table


def _written(value: object) -> str:
    return digits(value) if isinstance(value, float) else str(value)
