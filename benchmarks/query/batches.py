"""Accuracy and CPU time after each batch of the 22 queries of TPC-H, as a table that simulations take their truth from.

`python -m benchmarks.query batches --scale 1 --orders 4 --folder FOLDER --out FILE.json`

The table has a part for each scale factor, with the machine that measured it: other parts of the file stay as they are.
Each query is run in a process of its own with one thread, on prepared data; CPU time counts, so that what else the
machine does matters little, and several may run at once (`--processes`). After each batch it notes what the intervals
promise, what Rotary's envelope says and how accurate the answer really is: one less the relative error, of each column
that of the worst row, in the mean of the columns. Further orders of the data are read by hash from the tables as they
were generated, and give accuracies only. Queries that are not estimated have no accuracy until the last batch. The peak
memory is that of the process, and the plan is what EXPLAIN says of it. What is in the file already is not measured
again. Data are those of `python -m benchmarks.query.cost` in the same folder, and made if they are not there.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.machine import ROOT, Machine, machine
from benchmarks.query.cost import generated, said, tpch_queries
from hocket.cli.terminal.output_files import whole
from hocket.estimators.query_memory import held_mib
from hocket.query import Query
from hocket.runtimes.query.accuracy import ColumnAccuracy, EnvelopeAccuracy, relative_error
from hocket.runtimes.query.data_sources import open_data


class Batch(Struct, frozen=True, array_like=True):
    """What is known after a batch, rounded to 5 digits."""

    fraction: float  # of the data that was read
    cpu_s: float  # since the query began; of the first order, on prepared data
    promised: float | None  # accuracy by intervals at 95 %
    envelope: float | None  # by Rotary's rule
    true: float  # as compared with the exact answer


class MeasuredQuery(Struct, frozen=True):
    """One query."""

    query: int
    mode: str  # how it is split: sampled, collected, or all at once
    peak_mib: float
    held_mib: float  # what its plan holds at once, by EXPLAIN
    orders: tuple[tuple[Batch, ...], ...]


class MeasuredBatches(Struct, frozen=True):
    """All of them at one scale; the file has a list of these."""

    command: str
    machine: Machine
    scale: float
    queries: dict[str, MeasuredQuery]


def run(native: str, prepared: str, number: int, sql: str, orders: int) -> MeasuredQuery:
    """One query, in this process."""
    data = open_data(prepared, 1)
    plan = data.connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()[0][1]
    for _answer in Query(sql, data):  # The first run reads from the disk.
        pass
    peak_mib = _peak_mib()
    query = Query(sql, data)
    found = [_order(query)]
    plain = open_data(native, 1) if query.mode is not None else None
    for seed in range(1, orders) if plain is not None else ():
        plain.seed = seed
        found.append(_order(Query(sql, plain)))
    mode = query.mode.value if query.mode is not None else "all at once"
    return MeasuredQuery(number, mode, round(peak_mib, 1), round(held_mib(plan), 1), tuple(found))


def _order(query: Query) -> tuple[Batch, ...]:
    began_s, seen = _cpu_s(), []
    for answer in query:
        seen.append((_cpu_s() - began_s, answer))
    exact = seen[-1][1]
    columns = ColumnAccuracy(query.columns, False, {})
    envelope = EnvelopeAccuracy(columns, exact.bounded)
    batches = []
    for cpu_s, answer in seen:
        said_by_envelope = 1.0 if answer.is_exact else envelope.of(answer.rows, answer.half_widths)
        true = 1.0 if answer.is_exact else _true(answer, exact, columns)
        batches.append(
            Batch(
                round(answer.fraction, 5), round(cpu_s, 4), _rounded(answer.accuracy), _rounded(said_by_envelope),
                round(true, 5),
            )
        )  # fmt: skip
    return tuple(batches)


def _true(answer: Any, exact: Any, columns: ColumnAccuracy) -> float:
    if not exact.bounded:
        return 0.0
    names = [n for n in range(len(exact.columns)) if n not in exact.bounded]
    rows = {tuple(row[n] for n in names): row for row in answer.rows}
    errors = dict.fromkeys(exact.bounded, 0.0)
    for row in exact.rows:
        estimate = rows.get(tuple(row[n] for n in names))
        for n in exact.bounded:
            errors[n] = max(errors[n], 1.0 if estimate is None else relative_error(estimate[n], row[n]))
    return columns.of(errors) or 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(max(0.0, value), 5)


def _peak_mib() -> float:
    """Of this program: `ru_maxrss` may still be that of the process which started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def scales_of(file: Path) -> list[MeasuredBatches]:
    """What a file has, the smallest scale first."""
    found = msgspec.json.decode(file.read_bytes(), type=list[MeasuredBatches])
    return sorted(found, key=lambda each: each.scale)


def written(found: Sequence[MeasuredBatches]) -> str:
    """The file, an order on each line."""
    return "[" + ",\n".join(_scale(each) for each in sorted(found, key=lambda each: each.scale)) + "]\n"


def _scale(found: MeasuredBatches) -> str:
    about = [f'"{name}": {_json(getattr(found, name))}' for name in ("command", "machine", "scale")]
    queries = []
    for name, query in sorted(found.queries.items(), key=lambda each: each[1].query):
        fields = [f'"{field}": {_json(getattr(query, field))}' for field in ("query", "mode", "peak_mib", "held_mib")]
        orders = ",\n    ".join(_json(order) for order in query.orders)
        queries.append(f'  "{name}": {{{", ".join(fields)}, "orders": [\n    {orders}]}}')
    return "{" + ",\n ".join(about) + ',\n "queries": {\n' + ",\n".join(queries) + "\n}}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def main(arguments: list[str]) -> None:
    """Measure those that are not in the file yet."""
    if arguments[:1] == ["--run"]:
        native, prepared, number, sql, orders = arguments[1:]
        print(msgspec.json.encode(run(native, prepared, int(number), sql, int(orders))).decode())
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.query batches", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H (1)")
    parser.add_argument("--orders", type=int, default=4, help="in which the data are read (4)")
    parser.add_argument("--queries", type=int, nargs="+", default=list(range(1, 23)), metavar="N", help="of TPC-H")
    parser.add_argument("--folder", type=Path, required=True, help="where data are kept, and found again")
    parser.add_argument("--out", type=Path, required=True, help="the table")
    parser.add_argument("--processes", type=int, default=1, help="queries that are measured at a time (1)")
    chosen = parser.parse_args(arguments)
    command = f"python -m benchmarks.query batches --scale {chosen.scale:g} --orders {chosen.orders}"
    chosen.folder.mkdir(parents=True, exist_ok=True)
    native, prepared = (chosen.folder / f"tpch-{chosen.scale:g}{kind}.duckdb" for kind in ("", "-prepared"))
    here = machine()
    generated(chosen.scale, native, prepared)
    known = scales_of(chosen.out) if chosen.out.exists() else []
    found = next((each for each in known if each.scale == chosen.scale), None)
    if found is None:
        found = MeasuredBatches(command, here, chosen.scale, {})
        known.append(found)
    texts = tpch_queries()

    def measured(number: int) -> MeasuredQuery:
        said(f"q{number}")
        process = [sys.executable, "-m", "benchmarks.query.batches", "--run", str(native), str(prepared)]
        done = subprocess.run(
            [*process, str(number), texts[number], str(chosen.orders)], cwd=ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"benchmarks: q{number} failed: {(done.stderr.splitlines() or [''])[-1]}")
        return msgspec.json.decode(done.stdout, type=MeasuredQuery)

    with ThreadPoolExecutor(chosen.processes) as pool:
        missing = [number for number in chosen.queries if f"q{number}" not in found.queries]
        for done in as_completed([pool.submit(measured, number) for number in missing]):
            query = done.result()
            found.queries[f"q{query.query}"] = query
            with whole(chosen.out) as file:  # Should it be ended, the next run goes on.
                file.write(written(known))


if __name__ == "__main__":
    main(sys.argv[1:])
