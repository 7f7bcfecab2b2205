"""Summaries for users: one run as a list, several as a table with the best of each column marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from msgspec import Struct

from hocket.reports.comparison import ComparedRun
from hocket.reports.formatting import format_duration, format_number
from hocket.reports.mean_interval import MeanInterval, mean_interval
from hocket.reports.summary import Summary

if TYPE_CHECKING:
    from rich.table import Table

_RESOURCE_NAMES = {"gpus": "GPUs", "cores": "cores", "mem_mib": "memory", "net_mbps": "network"}


class Column(Struct, frozen=True):
    """One number of a summary in a comparison."""

    title: str
    value: Callable[[Summary], float | None]
    written: Callable[[float], str]
    best: Callable[[Sequence[float]], float] | None = None  # min or max; None where neither is better
    always: bool = True  # else only if some run has a value other than 0
    of_all_jobs: bool = False  # a time that cannot be compared if jobs are unfinished: these are often the longest


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else format_number(value)


COLUMNS = (
    Column("mean JCT", lambda s: s.jct_mean_s, format_duration, min, of_all_jobs=True),
    Column("p50", lambda s: s.jct_p50_s, format_duration, min, of_all_jobs=True),
    Column("p99", lambda s: s.jct_p99_s, format_duration, min, of_all_jobs=True),
    Column("mean wait", lambda s: s.wait_mean_s, format_duration, min, of_all_jobs=True),
    Column("makespan", lambda s: s.makespan_s, format_duration, min, of_all_jobs=True),
    Column("utilis.", lambda s: next(iter(s.utilisation.values()), None), _percent, max),
    Column("unfair", lambda s: s.fairness_loss, format_number, min),
    Column("deadlines", lambda s: s.deadlines_met, _percent, max, always=False),
    Column("goals", lambda s: s.accuracies_met, _percent, max, always=False),
    Column("changes", lambda s: float(s.adjustments), _count, min, always=False),
    Column("overhead", lambda s: s.overhead_share, _percent, min, always=False),
    Column("failed", lambda s: float(s.failed), _count, min, always=False),
    Column("unfinished", lambda s: float(s.unfinished), _count, min, always=False),
    Column("CPU", lambda s: s.cpu_s, format_duration, always=False),
)
# Columns that are left out on a narrow terminal, in this order.
_SPARED = (
    "CPU", "overhead", "p50", "makespan", "changes", "unfair", "mean wait", "utilis.", "goals", "deadlines", "p99",
    "failed",
)  # fmt: skip


def comparison_table(
    outcomes: Sequence[ComparedRun], width: int = 200, relative: Mapping[str, float | None] | None = None
) -> Table:
    """One row per policy; runs of one label are seeds of one policy, shown as mean and 95 % interval.

    On a narrow terminal the less important columns are left out, and the caption says so. `relative` has for each label
    the value under ×, if the runs did not end the same jobs: their means cannot be compared directly.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    groups: dict[str, list[Summary]] = {}
    for o in outcomes:
        groups.setdefault(o.label, []).append(o.summary)
    columns = [c for c in COLUMNS if c.always or any(c.value(s) for runs in groups.values() for s in runs)]
    spared: list[str] = []
    for title in _SPARED:
        if _width(columns, groups) > width:
            spared += [c.title for c in columns if c.title == title]
            columns = [c for c in columns if c.title != title]
    cells = {label: [_spread(c, runs) for c in columns] for label, runs in groups.items()}
    stuck = {o.label for o in outcomes if o.stuck}
    best = [_best(c, {label: row[i] for label, row in cells.items()}, stuck) for i, c in enumerate(columns)]

    table = Table(
        title=_title(outcomes), title_justify="left", header_style="bold", caption_justify="left", box=SIMPLE_HEAD
    )
    table.caption = "* best of its column"
    if stuck:
        table.caption += " (not marked: times of policies that left jobs unfinished)"
    table.caption += "; JCT: job completion time, × relative to the first policy"
    if relative is not None:
        table.caption += ", over the jobs that ended in both"
    if spared:
        table.caption += f"; left out to save space: {', '.join(spared)}"
    table.add_column("policy", no_wrap=True)
    for i, column in enumerate(columns):
        table.add_column(column.title, justify="right")
        if i == 0:
            table.add_column("×", justify="right")
    first = next(iter(cells.values()), [None])[0]
    for label, row in cells.items():
        texts = []
        for column, value, top in zip(columns, row, best, strict=True):
            # A single run is not compared with anything.
            is_best = value is not None and value.mean == top and len(cells) > 1 and _may_be_best(column, label, stuck)
            text = _written(column, value) + ("*" if is_best else " ")
            texts.append(Text(text, style="bold green" if is_best else ""))
        ratio = _ratio(row[0], first) if relative is None else _times(relative.get(label))
        texts.insert(1, Text(ratio))
        table.add_row(Text(label), *texts)
    return table


def summary_table(summary: Summary) -> Table:
    """One run, one line per number."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{summary.policy} · {summary.workload}", title_justify="left", show_header=False, box=None)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in _lines(summary):
        table.add_row(Text(name), Text(value))
    return table


def _lines(s: Summary) -> list[tuple[str, str]]:
    ended = [f"{s.finished:,} finished"]
    ended += [f"{n:,} {what}" for what in ("failed", "refused", "unfinished") if (n := getattr(s, what))]
    others = {v: n for v, n in s.verdicts.items() if v not in ("finished", "failed")}
    if others:
        ended[0] += " (" + ", ".join(f"{n:,} {v}" for v, n in sorted(others.items())) + ")"
    utilisation = ", ".join(f"{_RESOURCE_NAMES[r]} {_percent(u)}" for r, u in s.utilisation.items())
    lines = [
        ("jobs", f"{s.jobs:,}: {', '.join(ended)}"),
        ("makespan", format_duration(s.makespan_s)),
        (
            "job completion time",
            f"mean {format_duration(s.jct_mean_s)}, p50 {format_duration(s.jct_p50_s)}, "
            f"p99 {format_duration(s.jct_p99_s)}",
        ),
        ("mean wait", format_duration(s.wait_mean_s)),
        ("utilisation", utilisation or "–"),
        ("fairness loss", format_number(s.fairness_loss)),
    ]
    if s.deadlines_met is not None:
        lines.append(("deadlines met", _percent(s.deadlines_met)))
    if s.accuracies_met is not None:
        lines.append(("goals reached", _percent(s.accuracies_met)))
    lines.append(("changes", f"{s.adjustments:,}, of which {s.preemptions:,} pauses"))
    lines.append(("overhead", f"{_percent(s.overhead_share)} of the time that jobs held resources"))
    decided = f"{s.decisions:,}"
    if s.decision_ms_mean is not None and s.decision_ms_p99 is not None:
        decided += f" in {format_number(s.decision_ms_mean)} ms on average, p99 {format_number(s.decision_ms_p99)} ms"
    lines.append(("decisions", decided))
    if s.refused_plans:
        lines.append(("refused plans", f"{s.refused_plans:,}"))
    if s.beliefs:
        lines.append(("beliefs", s.beliefs))
    if s.cpu_s:
        speed = f", {format_number(s.jobs / s.cpu_s)} jobs per CPU-second"
        lines.append(("cost", f"{format_number(s.cpu_s)} CPU-s{speed}, {format_number(s.peak_rss_mib)} MiB at most"))
    return lines


def _title(outcomes: Sequence[ComparedRun]) -> str:
    if not outcomes:
        return ""
    s = outcomes[0].summary
    seeds = len({o.summary.seed for o in outcomes})
    return f"{s.workload}: {s.jobs:,} jobs" + (
        f", {seeds} seeds: mean ± half of the 95 % interval" if seeds > 1 else ""
    )


def _width(columns: Sequence[Column], groups: dict[str, list[Summary]]) -> int:
    """How wide the table will be: the widest cell of each column and the space about it."""
    wide = max((len(label) for label in groups), default=0) + 5 + len("1.00") + 3
    for c in columns:
        wide += 3 + max([len(c.title), *(len(_written(c, _spread(c, runs))) + 1 for runs in groups.values())])
    return wide


def _spread(column: Column, runs: Sequence[Summary]) -> MeanInterval | None:
    return mean_interval([v for s in runs if (v := column.value(s)) is not None])


def _best(column: Column, values: Mapping[str, MeanInterval | None], stuck: Set[str]) -> float | None:
    means = {label: v.mean for label, v in values.items() if v is not None}
    able = [mean for label, mean in means.items() if _may_be_best(column, label, stuck)]
    return column.best(able) if column.best is not None and able and len(set(means.values())) > 1 else None


def _may_be_best(column: Column, label: str, stuck: Set[str]) -> bool:
    return not column.of_all_jobs or label not in stuck


def _written(column: Column, value: MeanInterval | None) -> str:
    if value is None:
        return "–"
    text = column.written(value.mean)
    if value.half_width is not None:
        share = value.half_width / abs(value.mean) if value.mean else 0.0
        text += f" ±{share * 100:.0f}%"
    return text


def _ratio(value: MeanInterval | None, first: MeanInterval | None) -> str:
    return _times(value.mean / first.mean if value is not None and first is not None and first.mean else None)


def _times(ratio: float | None) -> str:
    return f"{ratio:.2f}" if ratio is not None else "–"
