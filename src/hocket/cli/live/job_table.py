"""Jobs in a table: on terminals with colours and bars; in pipes as plain columns, quick with ten thousand rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from hocket.cli.live.job_rows import MISSED, WELL

if TYPE_CHECKING:
    from hocket.cli.live.job_rows import ListedJob
    from hocket.model.criterion import Limit

TITLES = ("job", "owner", "state", "gpus", "waited", "ran", "epoch", "metric", "until", "reason")
_STYLES = {
    "running": "green", "starting": "cyan", "pausing": "yellow", "paused": "yellow", "held": "magenta", "waiting": "",
    "failed": "bold red", "missed": "red",
}  # fmt: skip
_BAR = 12  # columns
_LONGEST = 32  # of a name
_SHORTEST_S = 0.05  # that is shown of a time


def styled_state(state: str, kept: str = "") -> Any:
    """A state in its colour, and where the state of a paused job is kept if that is in memory."""
    from rich.text import Text

    return Text(state_words(state, kept), style=_STYLES.get(state, "dim" if state in WELL else "yellow"))


def state_words(state: str, kept: str) -> str:
    """A state such as `paused, in memory (312 MiB)`; a state on disk uses no memory, and is not mentioned."""
    return f"{state}, {kept}" if kept.startswith("in memory") else state


def job_table(found: Sequence[ListedJob], *, brief: bool = False) -> Any:
    """A table for a terminal; the brief one is for jobs that a command waits for."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    left_out = ("owner", "waited", "reason") if brief else ()
    for title in ("job", "owner", "state", "gpus", "waited", "ran", "epoch", "progress", "reason"):
        if title in left_out:
            continue
        is_number = title in ("waited", "ran", "epoch")
        # Where room is short, the reason gives way first: it is the one that may wrap, though its text does not.
        table.add_column(title, justify="right" if is_number else "left", no_wrap=title != "reason")
    for row in found:
        name = Text(row.id if len(row.id) <= _LONGEST else f"{row.id[: _LONGEST - 1]}…")
        cells = [name] if brief else [name, Text(row.owner)]
        cells += [styled_state(row.state, row.kept), Text(devices(row))]
        cells += [] if brief else [Text(_time(row.waited_s))]
        cells += [Text(_time(row.ran_s)), Text(_epoch(row))]
        bar, metric = bar_of(row), metric_shown(row)
        cells += [bar + Text(f" {metric}") if bar else Text(metric)]
        cells += [] if brief else [Text(one_line(row.reason), style="dim", no_wrap=True, overflow="ellipsis")]
        table.add_row(*cells)
    return table


def bar_of(row: ListedJob, width: int = _BAR) -> Any:
    """A bar towards the criterion; empty where that is not known."""
    from rich.text import Text

    share = share_done(row)
    if share is None:
        return Text()
    if share < 1:  # A full bar would say that it is there.
        share = min(share, 0.99)
    filled = min(round(share * width), width if share == 1 else width - 1)
    done = Text("━" * filled, style="red" if row.state == MISSED else "green")
    return done + Text("━" * (width - filled), style="bright_black") + Text(f" {share:4.0%}")


def plain_lines(found: Iterable[ListedJob]) -> Iterable[str]:
    """The rows as aligned columns, the header first."""
    from hocket.reports.formatting import format_duration

    lines = [TITLES]
    for row in found:  # Most of ten thousand have neither devices nor metrics yet, and have not run.
        lines.append(
            (
                row.id,
                row.owner or "–",
                state_words(row.state, row.kept),
                devices(row) or "–",
                format_duration(row.waited_s) if row.waited_s >= _SHORTEST_S else "–",
                format_duration(row.ran_s) if row.ran_s >= _SHORTEST_S else "–",
                _epoch(row) or "–",
                (metric_shown(row) or "–") if row.metrics else "–",
                row.until or "–",
                row.reason,
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    form = "  ".join(f"{{:{width}}}" for width in widths) + "  {}"
    return (one_line(form.format(*line)).rstrip() for line in lines)


def one_line(text: str) -> str:
    """Without what would move a terminal's cursor: reasons may quote what users wrote."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def devices(row: ListedJob) -> str:
    """`n0:0-3 n1:0`: where it runs; of a query, on how many threads."""
    if row.kind == "query":
        return f"{row.size} thread{'' if row.size == 1 else 's'}" if row.size else ""
    by_node: dict[str, list[int]] = {}
    for device in row.gpus:
        node, _colon, index = device.rpartition(":")
        by_node.setdefault(node, []).append(int(index) if index.isdecimal() else 0)
    return " ".join(f"{node}:{spans(sorted(indices))}" for node, indices in by_node.items())


def spans(indices: Sequence[int]) -> str:
    """`0-3,6` for 0, 1, 2, 3 and 6."""
    found: list[list[int]] = []
    for index in indices:
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in found)


def _time(time_s: float) -> str:
    from hocket.reports.formatting import format_duration

    return format_duration(time_s) if time_s >= _SHORTEST_S else "–"


def _epoch(row: ListedJob) -> str:
    if row.epoch:
        return f"{row.epoch:g}"
    return f"step {row.step}" if row.step else ""


def share_done(row: ListedJob) -> float | None:
    """Of the way to the goal by the metric, or of the epochs or the time it runs for; None if that is not known.

    A job that missed its goal is below 1, and the epochs that it spent are no way to it.
    """
    from hocket.model.criterion import CriterionError, Goal, RunTime, parse

    if not row.until:
        return None
    try:
        criterion = parse(row.until)
    except CriterionError:  # of a controller that knows more than we do
        return None
    if isinstance(criterion, RunTime):
        return _of_limit(criterion.limit, row)
    if isinstance(criterion, Goal):
        value = row.metrics.get(criterion.metric)
        if isinstance(value, int | float) and isfinite(value):
            if criterion.met_by(value):
                return None if row.state == MISSED else 1.0  # It came too late.
            best, worst = (value, criterion.target) if criterion.relation == ">=" else (criterion.target, value)
            return max(0.0, min(1.0, best / worst)) if best > 0 and worst > 0 else None
    if row.state == MISSED:
        return None
    # Epochs and steps count towards the end of the attempt at least; hours that passed since it was submitted do not.
    return _of_limit(criterion.deadline, row, only_counts=True)


def metric_shown(row: ListedJob) -> str:
    """The value that matters: that of the criterion's metric, or the first two that it reports."""
    named = row.until.split()[0] if row.until else ""
    names = [named] if named in row.metrics else sorted(row.metrics)[:2]
    values = ((name, row.metrics[name]) for name in names)
    return " ".join(f"{name}={value:.4g}" for name, value in values if isinstance(value, int | float))


def _of_limit(limit: Limit | None, row: ListedJob, only_counts: bool = False) -> float | None:
    from hocket.model.criterion import Duration, Epochs, Steps

    if isinstance(limit, Epochs):
        return max(0.0, min(1.0, row.epoch / limit.count))
    if isinstance(limit, Steps):
        return max(0.0, min(1.0, row.step / limit.count))
    if isinstance(limit, Duration) and not only_counts:
        return max(0.0, min(1.0, row.ran_s / limit.time_s))
    return None
