"""How often a query that stops at a goal has not attained it, and how much of its data it has read by then.

`python -m benchmarks.query stops --scale 1 --orders 200 --json stops.json`

Over many orders of the data, every query of TPC-H that is estimated is run to `acc >= 95%` and `99%`, by its intervals
and by Rotary's envelope. A stop is false if the answer has not the accuracy that was asked for: one less the relative
error, of each column that of the worst row, in the mean of the columns. A row of the exact answer that is missing is
wrong altogether. With `--json` results are kept as they come, and a second start goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine, table
from benchmarks.query.orders import NotSampled, Orders, tpch_queries
from hocket.cli.terminal.progress import bars
from hocket.runtimes.query.accuracy import ColumnAccuracy, EnvelopeAccuracy, IntervalAccuracy, relative_error
from hocket.runtimes.query.answers import AnswerTable
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import UNITS
from hocket.runtimes.query.progressive import ENDS

GOALS = (0.95, 0.99)
RULES = ("intervals", "envelope")
SAVED_EVERY = 20  # orders


class Stops(Struct):
    """By one rule, at one goal."""

    rule: str
    goal: float
    early: int = 0  # stops before all data were read
    false: int = 0  # of these, those whose answer has not the accuracy
    read: float = 0.0  # the sum of the shares of data read


class Stopped(Struct):
    """One query."""

    query: int
    orders: int = 0
    stops: list[Stops] = []
    why_not: str = ""


class Measured(Struct):
    """All of one run."""

    command: str
    machine: Machine
    scale: float
    confidence: float
    window: int
    queries: dict[int, Stopped] = {}


def accuracy(orders: Orders, answer: AnswerTable, columns: ColumnAccuracy) -> float:
    """The true one."""
    rows = {orders.group(row): row for row in answer.rows}
    errors = dict.fromkeys(orders.bounded, 0.0)
    for group, exact in orders.exact.items():
        for n in orders.bounded:
            error = relative_error(rows[group][n], exact[n]) if group in rows else 1.0
            errors[n] = max(errors[n], error)
    found = columns.of(errors)
    assert found is not None
    return found


def measure(orders: Orders, found: Stopped, to: int, settings: Measured, tick: Callable[[], None]) -> None:
    """Go on to so many orders."""
    if not found.stops:
        found.stops = [Stops(rule, goal) for rule in RULES for goal in GOALS]
    columns = ColumnAccuracy(orders.columns, False, {})
    while found.orders < to:
        rules = {
            "intervals": IntervalAccuracy(columns, orders.bounded, settings.confidence, len(ENDS)),
            "envelope": EnvelopeAccuracy(columns, orders.bounded, settings.window),
        }
        open_stops = list(found.stops)
        for end, answer in zip(ENDS, orders.answers(found.orders + 1, settings.confidence), strict=False):
            said = {name: rule.of(answer.rows, answer.half_widths) for name, rule in rules.items()}
            for stop in list(open_stops):
                promised = said[stop.rule]
                if promised is not None and promised >= stop.goal:
                    open_stops.remove(stop)
                    stop.early += 1
                    stop.false += accuracy(orders, answer, columns) < stop.goal
                    stop.read += end / UNITS
        for stop in open_stops:
            stop.read += 1.0
        found.orders += 1
        tick()


def main(arguments: list[str]) -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query stops", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H's data (0.1)")
    parser.add_argument("--data", metavar="FILE", help="a DuckDB file that has the data of this scale already")
    parser.add_argument("--threads", type=int, help="of DuckDB; all cores by default")
    parser.add_argument("--orders", type=int, default=200, help="in which the data are read (200)")
    parser.add_argument("--queries", type=int, nargs="+", default=list(range(1, 23)), metavar="N", help="of TPC-H")
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--window", type=int, default=3, help="of the envelope, in answers (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results, kept as they come; a second start goes on")
    chosen = parser.parse_args(arguments)
    command = " ".join(["python -m benchmarks.query stops", *arguments])
    found = Measured(command, machine(), chosen.scale, chosen.confidence, chosen.window)
    if chosen.json is not None and chosen.json.exists():
        before = msgspec.json.decode(chosen.json.read_bytes(), type=Measured)
        if (before.scale, before.confidence, before.window) != (found.scale, found.confidence, found.window):
            parser.error(f"{chosen.json} has another scale, confidence or window")
        found.queries = before.queries

    def save() -> None:
        if chosen.json is not None:
            chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))

    data = open_data(chosen.data or f"tpch:{chosen.scale:g}", threads=chosen.threads)
    with bars("orders") as progress:
        for number in chosen.queries:
            here = found.queries.setdefault(number, Stopped(number))
            task = progress.add_task(f"query {number}", total=chosen.orders, completed=here.orders)
            if here.orders >= chosen.orders or here.why_not:
                continue
            try:
                orders = Orders(data, tpch_queries()[number])
            except NotSampled as reason:
                here.why_not = str(reason)
                continue
            while here.orders < chosen.orders:
                to = min(chosen.orders, here.orders + SAVED_EVERY)
                measure(orders, here, to, found, lambda task=task: progress.advance(task))  # type: ignore[misc]
                save()
    save()
    print(text(found, chosen.queries))


def text(found: Measured, queries: list[int]) -> str:
    """One table: the rules beside each other."""
    here = found.machine
    lines = [
        found.command, f"{here.date}, {here.cores} cores, load {here.load:g}",
        "early: stops before all data were read; false: of all runs, those that stopped without the accuracy; "
        "read: of the data, in the mean of all runs",
    ]  # fmt: skip
    heads = [f"{what}, {goal:.0%}" for goal in GOALS for what in ("early", "false", "read")]
    measured = [q for n in queries if (q := found.queries[n]).orders]
    for rule in RULES:
        rows, sums = [], [0.0] * len(heads)
        for q in measured:
            stops = [stop for stop in q.stops if stop.rule == rule]
            values = [share / q.orders for stop in stops for share in (stop.early, stop.false, stop.read)]
            sums = [a + b for a, b in zip(sums, values, strict=True)]
            rows.append((str(q.query), str(q.orders), *(f"{v:.1%}" for v in values)))
        if rows:
            rows.append(("mean", "", *(f"{v / len(rows):.1%}" for v in sums)))
        lines += ["", f"BY {rule.upper()}", *table(("query", "orders", *heads), rows)]
    return "\n".join(lines + [f"query {n}: {q.why_not}" for n in queries if (q := found.queries[n]).why_not])
