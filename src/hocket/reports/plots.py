"""Figures of a run and of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hocket.model.resources import Node
from hocket.reports.account import Account, Span
from hocket.reports.comparison import ComparedRun, TimeSeries, jct_curve, time_series
from hocket.reports.figure_style import colour, dash, drawing, ink_on, save
from hocket.reports.formatting import axis_unit, format_duration
from hocket.reports.mean_interval import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RESOURCE_NAMES = {"gpus": "GPUs", "cores": "cores", "mem_mib": "memory", "net_mbps": "network"}
_COARSER = 3  # intervals of a series to one of a comparison
_LABELLED_JOBS = 80  # with more bars, names would not be readable


def plot_run(account: Account, folder: Path) -> list[Path]:
    """Draw a run: job completion times, utilisation, queue and Gantt chart. Returns the files."""
    over_time = time_series(account)
    title = f"{account.header.policy} · {_shortened(account.header.workload)}"
    draw: dict[str, tuple[tuple[float, float], Callable[[Axes], None]]] = {
        "jct": ((6.4, 3.8), lambda axes: _jct(axes, [(account.header.policy, jct_curve(account))])),
        "utilisation": ((7.6, 3.4), lambda axes: _utilisation(axes, over_time)),
        "queue": ((7.6, 3.4), lambda axes: _queue(axes, over_time)),
    }
    files: list[Path] = []
    with drawing() as figure:
        for name, (size, drawn) in draw.items():
            sheet = figure(size)
            axes = sheet.add_subplot()
            drawn(axes)
            axes.set_title(f"{axes.get_title(loc='left')} — {title}", loc="left")
            files += save(sheet, folder, name)
        files += save(_gantt(figure, account, chart(account), title), folder, "gantt")
    return files


def plot_comparison(outcomes: Sequence[ComparedRun], folder: Path) -> list[Path]:
    """Draw several policies over each other in one figure; runs of one label are seeds of one policy."""
    groups: dict[str, list[ComparedRun]] = {}
    for o in outcomes:
        groups.setdefault(o.label, []).append(o)
    firsts = [runs[0] for runs in groups.values()]
    with drawing() as figure:
        sheet = figure((11.5, 7.2))
        axes = sheet.subplots(2, 2)
        _jct(axes[0][0], [(o.label, o.jct_curve) for o in firsts])
        _mean_jcts(axes[0][1], groups)
        _over_time(axes[1][0], firsts, _shown_resource(firsts), "utilisation")
        _over_time(axes[1][1], firsts, "", "waiting")
        handles, labels = axes[0][0].get_legend_handles_labels()
        if (legend := axes[0][0].get_legend()) is not None:
            legend.remove()
        sheet.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 8))
        seeds = len(next(iter(groups.values()), []))
        note = f", {seeds} seeds (lines: the first)" if seeds > 1 else ""
        sheet.suptitle(
            f"{_shortened(firsts[0].summary.workload)}: {firsts[0].summary.jobs:,} jobs{note}" if firsts else "",
            fontsize=12,
        )
        return save(sheet, folder, "compare")


# -- one panel each ------------------------------------------------------------------------------------------


def _jct(axes: Axes, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> None:
    """The distribution of completion times; users notice its upper end most."""
    shortest_s = 1.0
    for n, (label, curve) in enumerate(curves):
        times = [max(time_s, shortest_s) for time_s, _share in curve]
        axes.plot(times, [share for _time, share in curve], color=colour(n), linestyle=dash(n), label=label)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.06)
    axes.set_yticks([n / 5 for n in range(6)])
    axes.set_title("Job completion time", loc="left")
    axes.set_xlabel("completion time (log scale)")
    axes.set_ylabel("share of jobs")
    _percent(axes)
    _label_log_times(axes)
    if len(curves) > 1:
        axes.legend(loc="lower right")
    elif curves and curves[0][1]:
        _mark_quantiles(axes, curves[0][1])


def _mark_quantiles(axes: Axes, curve: Sequence[tuple[float, float]]) -> None:
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        time_s = next(t for t, s in curve if s >= share)
        axes.plot([max(time_s, 1.0)], [share], "o", color="#333333", markersize=4)
        axes.annotate(
            f"{name} {format_duration(time_s)}",
            (max(time_s, 1.0), share),
            (-5, 6),
            textcoords="offset points",
            ha="right",
        )


def _utilisation(axes: Axes, over_time: TimeSeries) -> None:
    for n, (resource, values) in enumerate(over_time.utilisation.items()):
        times = _times(axes, over_time, len(values))
        axes.stairs(values, times, color=colour(n), linewidth=1.4, label=_RESOURCE_NAMES[resource])
        if len(over_time.utilisation) == 1:
            axes.stairs(values, times, fill=True, color=colour(n), alpha=0.18)
    axes.set_ylim(0, 1.02)
    axes.set_title("Utilisation", loc="left")
    names = [_RESOURCE_NAMES[r] for r in over_time.utilisation]
    axes.set_ylabel(f"{names[0]} held" if len(names) == 1 else "share held")
    _percent(axes)
    if len(names) > 1:
        axes.legend(loc="upper right", ncols=len(names))


def _queue(axes: Axes, over_time: TimeSeries) -> None:
    times = _times(axes, over_time, len(over_time.running))
    lines = {"running": (over_time.running, colour(0)), "waiting": (over_time.waiting, colour(5))}
    for label, (values, ink) in lines.items():
        if any(values):
            axes.stairs(values, times, color=ink, label=label, linewidth=1.4)
    if any(over_time.waiting):
        axes.stairs(over_time.waiting, times, fill=True, color=colour(5), alpha=0.18)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", ncols=2)
    axes.set_ylim(bottom=0)
    _whole_numbers(axes)
    axes.set_title("Queue", loc="left")
    axes.set_ylabel("jobs")


def _mean_jcts(axes: Axes, groups: dict[str, list[ComparedRun]]) -> None:
    spreads = [
        mean_interval([o.summary.jct_mean_s for o in runs if o.summary.jct_mean_s is not None])
        for runs in groups.values()
    ]
    means = [s.mean if s is not None else 0.0 for s in spreads]
    unit, unit_s = axis_unit(3 * max(means, default=0.0))
    rows = range(len(means))
    axes.barh(rows, [m / unit_s for m in means], color=[colour(n) for n in rows], height=0.65)
    for n, s in enumerate(spreads):
        if s is not None and s.half_width is not None:
            axes.errorbar([s.mean / unit_s], [n], xerr=[s.half_width / unit_s], color="#333333", capsize=3, lw=1)
        if s is not None:
            right = (s.mean + (s.half_width or 0.0)) / unit_s
            axes.annotate(
                format_duration(s.mean), (right, n), (4, 0), textcoords="offset points", va="center", fontsize=8.5
            )
    axes.set_yticks(rows, list(groups))
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.set_title("Mean job completion time", loc="left")
    axes.set_xlabel(unit)


def _over_time(axes: Axes, outcomes: Sequence[ComparedRun], resource: str, what: str) -> None:
    longest_s = max((o.series.interval_s * len(o.series.running) for o in outcomes), default=0.0)
    unit, unit_s = axis_unit(longest_s)
    for n, o in enumerate(outcomes):
        values = _coarser(o.series.utilisation.get(resource, ()) if what == "utilisation" else o.series.waiting)
        times = [i * o.series.interval_s * _COARSER / unit_s for i in range(len(values) + 1)]
        if values:
            axes.stairs(
                values,
                times,
                color=colour(n),
                linestyle=dash(n),
                linewidth=1.3,
                alpha=0.9,
                label=o.label,
                baseline=None,
            )
    axes.set_xlabel(f"time since the first submission ({unit})")
    axes.set_xlim(0, longest_s / unit_s or 1)
    if what == "utilisation":
        axes.set_ylim(0, 1.02)
        axes.set_title(f"{_RESOURCE_NAMES.get(resource, 'Resources')} held", loc="left")
        axes.set_ylabel("share of the cluster")
        _percent(axes)
    else:
        axes.set_ylim(bottom=0)
        _whole_numbers(axes)
        axes.set_title("Waiting jobs", loc="left")
        axes.set_ylabel("jobs")


def _coarser(values: Sequence[float]) -> list[float]:
    """Means over several intervals each: several lines in one figure must be smoother than one."""
    groups = [values[i : i + _COARSER] for i in range(0, len(values), _COARSER)]
    return [sum(g) / len(g) for g in groups]


def _gantt(figure: Callable[[tuple[float, float]], Figure], account: Account, shown: Chart, title: str) -> Figure:
    from matplotlib.collections import PolyCollection

    rows = len(shown.rows)
    sheet = figure((10.5, min(max(1.6 + 0.17 * rows, 2.6), 11.0)))
    axes = sheet.add_subplot()
    unit, unit_s = axis_unit(account.makespan_s)
    boxes = []
    for bar in shown.bars:
        left, right = ((t - account.began_s) / unit_s for t in (bar.since_s, bar.until_s))
        low, high = bar.row + 0.06 + 0.88 * bar.low, bar.row + 0.06 + 0.88 * bar.high
        boxes.append([(left, low), (left, high), (right, high), (right, low)])
    # A thin white line separates neighbours; with thousands of bars it would hide them.
    edge = 0.3 if len(boxes) < 2000 else 0.0
    axes.add_collection(
        PolyCollection(boxes, facecolors=[colour(b.job) for b in shown.bars], edgecolors="white", linewidths=edge)
    )
    for row, (group, below) in enumerate(zip(shown.groups, shown.groups[1:], strict=False)):
        if group != below:
            axes.axhline(row + 1, color="#888888", linewidth=0.6)
    if len(account.jobs) <= _LABELLED_JOBS:
        _name_bars(axes, account, shown, unit_s)
        _mark_failures(axes, account, shown, unit_s)
    axes.set_xlim(0, account.makespan_s / unit_s or 1)
    axes.set_ylim(rows or 1, 0)
    step = max(1, rows // 32)
    axes.set_yticks([r + 0.5 for r in range(0, rows, step)], shown.rows[::step], fontsize=7)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"time since the first submission ({unit})")
    axes.set_ylabel("node : GPU" if any(":" in r for r in shown.rows) else "node")
    notes = []
    if shown.hidden_rows:
        notes.append(f"{rows} of {rows + shown.hidden_rows:,} rows")
    if shown.hidden_bars:
        notes.append(f"the longest {len(shown.bars):,} of {len(shown.bars) + shown.hidden_bars:,} bars")
    note = f" ({', '.join(notes)})" if notes else ""
    axes.set_title(f"Which job ran where{note} — {title}", loc="left")
    return sheet


def _name_bars(axes: Axes, account: Account, shown: Chart, unit_s: float) -> None:
    """Write a job's name on each of its bars that is wide enough."""
    for bar in shown.bars:
        job_id = account.jobs[bar.job].job.id
        wide = (bar.until_s - bar.since_s) / (account.makespan_s or 1.0) > 0.0085 * len(job_id)
        if wide and bar.high - bar.low == 1.0:
            middle_s = (bar.since_s + bar.until_s) / 2 - account.began_s
            ink = ink_on(colour(bar.job))
            axes.text(middle_s / unit_s, bar.row + 0.52, job_id, ha="center", va="center", fontsize=6, color=ink)


def _mark_failures(axes: Axes, account: Account, shown: Chart, unit_s: float) -> None:
    """Put a cross where a run failed, was killed, or lost its node."""
    failed = set(account.failed)
    at = [(bar.until_s, bar.row + (bar.low + bar.high) / 2) for bar in shown.bars if (bar.job, bar.until_s) in failed]
    if not at:
        return
    times = [(until_s - account.began_s) / unit_s for until_s, _row in at]
    axes.plot(
        times, [row for _until_s, row in at], "X", color="black", markeredgecolor="white", markersize=9,
        clip_on=False, label="a run that failed or was killed",
    )  # fmt: skip
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)


# -- axes ----------------------------------------------------------------------------------------------------


def _times(axes: Axes, over_time: TimeSeries, intervals: int) -> list[float]:
    unit, unit_s = axis_unit(over_time.interval_s * intervals)
    axes.set_xlabel(f"time since the first submission ({unit})")
    axes.set_xlim(0, over_time.interval_s * intervals / unit_s or 1)
    return [i * over_time.interval_s / unit_s for i in range(intervals + 1)]


def _whole_numbers(axes: Axes) -> None:
    """There are no fractions of jobs."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _percent(axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _label_log_times(axes: Axes) -> None:
    """Ticks at times that have names, rather than at powers of ten."""
    from matplotlib.ticker import NullFormatter, NullLocator

    low_s, high_s = axes.get_xlim()
    named = (
        *((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (6 * 3600, "6 h")),
        *((86400, "1 d"), (7 * 86400, "1 wk"), (30 * 86400, "30 d"), (365 * 86400, "1 y")),
    )
    ticks = [(t, name) for t, name in named if low_s <= t <= high_s]
    if len(ticks) >= 2:
        axes.set_xticks([t for t, _name in ticks], [name for _t, name in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())


def _shown_resource(outcomes: Sequence[ComparedRun]) -> str:
    """The first resource that the cluster has."""
    return next((r for o in outcomes for r in o.series.utilisation), "gpus")


def _shortened(workload: str) -> str:
    """A workload's name without the folders of its path, and no longer than a title holds."""
    reader, colon, path = workload.rpartition(":")
    name = f"{reader}{colon}{path.rsplit('/', 1)[-1]}"
    return name if len(name) <= 42 else f"{name[:41]}…"


MAX_ROWS = 64
MAX_BARS = 6000


class Bar(Struct, frozen=True, gc=False):
    """A job on a row: a GPU, or a node without GPUs. On a shared row a bar has a part of the height."""

    row: int
    job: int  # its number
    since_s: float
    until_s: float
    low: float = 0.0  # from 0 to 1 within the row
    high: float = 1.0


class Chart(Struct, frozen=True):
    """Rows from top to bottom, and the bars on them."""

    rows: tuple[str, ...]
    groups: tuple[int, ...]  # by row: the number of its node, for lines between nodes
    bars: tuple[Bar, ...]
    hidden_rows: int = 0
    hidden_bars: int = 0  # too short to see, where there are too many


def chart(account: Account, max_rows: int = MAX_ROWS, max_bars: int = MAX_BARS) -> Chart:
    """The chart of a run. Of too many rows, nodes evenly spread over the cluster are shown."""
    nodes = list({n.id: n for _since, nodes in account.capacity for n in nodes}.values())
    shown = _shown(nodes, max_rows)
    rows: list[str] = []
    groups: list[int] = []
    first: dict[str, int] = {}
    for number, node in enumerate(shown):
        first[node.id] = len(rows)
        names = [f"{node.id}:{g}" for g in range(node.gpus)] or [node.id]
        rows += names[:max_rows]
        groups += [number] * len(names[:max_rows])
    has_gpus = {n.id for n in shown if n.gpus}
    bars: list[Bar] = []
    lanes: dict[str, list[Span]] = {}
    for span in account.spans:
        for part in span.partition.slices:
            if part.node not in first:
                continue
            if part.node not in has_gpus:
                lanes.setdefault(part.node, []).append(span)
                continue
            low, high = _part(span, account.jobs[span.job].job.id)
            for gpu in part.gpus:
                if gpu < max_rows:
                    row = first[part.node] + gpu
                    bars.append(Bar(row, span.job, span.since_s, span.until_s, low, high))
    for node_id, spans in lanes.items():
        bars += _in_lanes(first[node_id], spans)
    every = sum(max(n.gpus, 1) for n in nodes)
    kept = _longest(bars, max_bars)
    return Chart(tuple(rows), tuple(groups), tuple(kept), every - len(rows), len(bars) - len(kept))


def _shown(nodes: Sequence[Node], max_rows: int) -> list[Node]:
    rows = sum(max(n.gpus, 1) for n in nodes)
    if rows <= max_rows:
        return list(nodes)
    room = max(1, max_rows * len(nodes) // rows)
    return [nodes[i * len(nodes) // room] for i in range(room)]


def _part(span: Span, job_id: str) -> tuple[float, float]:
    """The tenant's position in a shared row: the order of tenants in the partition."""
    tenants = span.partition.tenants
    if span.share == 1.0 or len(tenants) == 1:
        return 0.0, 1.0
    at = next((i for i, t in enumerate(tenants) if t.job == job_id and t.task == span.task), 0)
    return at / len(tenants), (at + 1) / len(tenants)


def _in_lanes(row: int, spans: list[Span]) -> list[Bar]:
    """Tenants of a node without GPUs, each in the first lane that is free."""
    ends: list[float] = []
    placed: list[tuple[int, Span]] = []
    for span in sorted(spans, key=lambda s: (s.since_s, s.job)):
        lane = next((i for i, end_s in enumerate(ends) if end_s <= span.since_s), len(ends))
        ends[lane : lane + 1] = [span.until_s]
        placed.append((lane, span))
    n = len(ends)
    return [Bar(row, s.job, s.since_s, s.until_s, lane / n, (lane + 1) / n) for lane, s in placed]


def _longest(bars: list[Bar], most: int) -> list[Bar]:
    if len(bars) <= most:
        return bars
    shortest_s = sorted((b.until_s - b.since_s for b in bars), reverse=True)[most]
    return [b for b in bars if b.until_s - b.since_s > shortest_s]
