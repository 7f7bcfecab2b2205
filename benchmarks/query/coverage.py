"""How often the intervals of a query cover the exact answer, over many orders of the data.

`python -m benchmarks.query coverage --scale 1 --orders 200 --json coverage.json`

For every query of TPC-H that is estimated, and every batch: the share of cells whose interval covers the exact answer,
of those that have one, and on which side the others miss. Orders are drawn by seeds, as the product draws them, and
`--runs` of them are compared with real runs. With `--json` results are kept as they come, and a second start goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, table
from benchmarks.query.orders import NotSampled, Orders, as_number, tpch_queries
from hocket.cli.terminal.progress import bars
from hocket.runtimes.query.answers import AnswerTable
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import UNITS
from hocket.runtimes.query.progressive import ENDS

SAVED_EVERY = 20  # orders


class Cells(Struct):
    """What became of the cells of one batch, over all orders."""

    covered: int = 0
    below: int = 0  # the exact answer is below the interval
    above: int = 0
    none: int = 0  # shown without an interval: too few rows for one
    absent: int = 0  # of a group that is not shown: not yet seen, or left out by LIMIT or HAVING

    @property
    def shown(self) -> int:
        """Those that have an interval."""
        return self.covered + self.below + self.above

    @property
    def share(self) -> float | None:
        """Of those that have an interval, the part that covers."""
        return self.covered / self.shown if self.shown else None


class Covered(Struct):
    """One query."""

    query: int
    columns: list[str] = []
    groups: int = 0
    orders: int = 0
    batches: list[Cells] = []
    by_column: dict[str, list[Cells]] = {}
    same_runs: int = 0  # of those that were compared with a real run
    why_not: str = ""  # the query has no intervals at all


class Measured(Struct):
    """All of one run."""

    command: str
    machine: Machine
    scale: float
    confidence: float
    queries: dict[int, Covered] = {}


def count(orders: Orders, answer: AnswerTable, batch: int, found: Covered) -> None:
    """Add the cells of one answer."""
    seen = set()
    for row, widths in zip(answer.rows, answer.half_widths, strict=True):
        seen.add(orders.group(row))
        true = orders.truth[orders.group(row)]
        for n in orders.bounded:
            cells = (found.batches[batch], found.by_column[orders.columns[n]][batch])
            value, exact, width = as_number(row[n]), as_number(true[n]), widths[n]
            for c in cells:
                if width is None or value is None or exact is None:
                    c.none += 1
                elif exact < value - width:
                    c.below += 1
                elif exact > value + width:
                    c.above += 1
                else:
                    c.covered += 1
    absent = (len(orders.truth) - len(seen)) * len(orders.bounded)
    found.batches[batch].absent += absent


def measure(orders: Orders, found: Covered, count_to: int, confidence: float, tick: Callable[[], None]) -> None:
    """Go on to so many orders."""
    found.columns, found.groups = [orders.columns[n] for n in orders.bounded], len(orders.truth)
    if not found.batches:
        found.batches = [Cells() for _ in ENDS[:-1]]
        found.by_column = {name: [Cells() for _ in ENDS[:-1]] for name in found.columns}
    while found.orders < count_to:
        for batch, answer in enumerate(orders.answers(found.orders + 1, confidence)):
            count(orders, answer, batch, found)
        found.orders += 1
        tick()


def main(arguments: list[str]) -> None:
    """Measure, and print a table for each query."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query coverage", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H's data (0.1)")
    parser.add_argument("--data", metavar="FILE", help="a DuckDB file that has the data of this scale already")
    parser.add_argument("--threads", type=int, help="of DuckDB; all cores by default")
    parser.add_argument("--orders", type=int, default=200, help="in which the data are read (200)")
    parser.add_argument("--queries", type=int, nargs="+", default=list(range(1, 23)), metavar="N", help="of TPC-H")
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--runs", type=int, default=2, help="orders that are compared with a real run (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results, kept as they come; a second start goes on")
    chosen = parser.parse_args(arguments)
    command = " ".join(["python -m benchmarks.query coverage", *arguments])
    found = Measured(command, machine(), chosen.scale, chosen.confidence)
    if chosen.json is not None and chosen.json.exists():
        before = msgspec.json.decode(chosen.json.read_bytes(), type=Measured)
        if (before.scale, before.confidence) != (chosen.scale, chosen.confidence):
            parser.error(f"{chosen.json} has scale {before.scale:g} and confidence {before.confidence:g}")
        found.queries = before.queries
    data = open_data(chosen.data or f"tpch:{chosen.scale:g}", threads=chosen.threads)
    with bars("orders") as progress:
        for number in chosen.queries:
            here = found.queries.setdefault(number, Covered(number))
            task = progress.add_task(f"query {number}", total=chosen.orders, completed=here.orders)
            if here.orders >= chosen.orders or here.why_not:
                continue
            try:
                orders = Orders(data, tpch_queries()[number])
            except NotSampled as reason:
                here.why_not = str(reason)
                continue
            here.same_runs = sum(orders.same_as_a_run(seed, chosen.confidence) for seed in range(chosen.runs))
            if here.same_runs < chosen.runs:
                raise SystemExit(f"query {number}: the answers are not those of real runs")
            while here.orders < chosen.orders:
                to = min(chosen.orders, here.orders + SAVED_EVERY)
                measure(orders, here, to, chosen.confidence, lambda task=task: progress.advance(task))  # type: ignore[misc]
                if chosen.json is not None:
                    chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if chosen.json is not None:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    print(text(found, chosen.queries))


def text(found: Measured, queries: list[int]) -> str:
    """A table for each query."""
    here = found.machine
    lines = [f"{found.command}", f"{here.date}, {here.cores} cores, load {here.load:g}"]
    for number in queries:
        q = found.queries[number]
        if q.why_not:
            lines += ["", f"QUERY {number}: no intervals: {q.why_not}"]
            continue
        lines += ["", f"QUERY {number}: {q.groups} groups, {', '.join(q.columns)}; {q.orders} orders"]
        rows = [
            (f"{end / UNITS:.1%}", *_shares(c), *(_percent(cells[n]) for cells in q.by_column.values()))
            for n, (end, c) in enumerate(zip(ENDS[:-1], q.batches, strict=True))
        ]
        lines += table(("data", "covered", "below", "above", "with interval", "without", "not shown", *q.columns), rows)
    return "\n".join(lines)


def _shares(c: Cells) -> tuple[str, ...]:
    every = c.shown + c.none + c.absent
    shown = c.shown or 1
    return (
        _percent(c), f"{c.below / shown:.1%}", f"{c.above / shown:.1%}", f"{c.shown / every:.1%}",
        f"{c.none / every:.1%}", f"{c.absent / every:.1%}",
    )  # fmt: skip


def _percent(c: Cells) -> str:
    return "" if c.share is None else f"{c.share:.1%}"
