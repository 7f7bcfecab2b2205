"""Who was where, when: the bars of a Gantt chart, as many as an eye can take in. No drawing here."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.model.resources import Node
from hocket.reports.account import Account, Span

MAX_ROWS = 64
MAX_BARS = 6000


class Bar(Struct, frozen=True, gc=False):
    """A job on a row: a GPU, or a node that has none. Of a shared row a bar takes a part of the height."""

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
    """Where in a shared row the tenant stands: in the order in which the partition names its tenants."""
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
