"""What a progressive query costs beside a plain one: `python -m benchmarks.query.cost --scale 1 [--queries q1,q6]`.

The 22 queries of TPC-H. The plain run is DuckDB on its own tables as they were generated; the progressive run is that
of `hocket.query` to its last, exact answer, on the same data after `hocket query prepare`. Each is a process of its
own, in which the query is run several times: the least CPU and wall time count, and the peak memory of the process.
The first answer's time begins before the query is parsed.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from msgspec import Struct

from benchmarks.machine import ROOT, machine, median, table
from hocket.query import Query
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData
from hocket.runtimes.query.prepare import keys_of_schema, prepare

QUERIES = range(1, 23)
# For a sample of rows: queries whose answer it can scale up; {s} is the sample of lineitem, {w} the weight of sums.
SAMPLED = {
    1: "SELECT l_returnflag, l_linestatus, sum(l_quantity) * {w}, sum(l_extendedprice) * {w}, "
    "sum(l_extendedprice * (1 - l_discount)) * {w}, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) * {w}, "
    "avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) * {w} FROM {s} "
    "WHERE l_shipdate <= DATE '1998-09-02' GROUP BY 1, 2 ORDER BY 1, 2",
    6: "SELECT sum(l_extendedprice * l_discount) * {w} FROM {s} WHERE l_shipdate >= DATE '1994-01-01' "
    "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    14: "SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / "
    "sum(l_extendedprice * (1 - l_discount)) FROM {s}, part WHERE l_partkey = p_partkey "
    "AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'",
}
PERCENTS = (0.1, 0.3, 1.0, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0)
SEEDS = 5


class Run(Struct, frozen=True):
    """One query, in a process of its own."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    first_cpu_s: float = 0.0
    first_s: float = 0.0
    how: str = ""
    mode: str = ""
    is_plain: bool = True  # the last answer is that of a plain run
    rows: list[list[str]] = []


class Cost(Struct, frozen=True):
    """A query, both ways."""

    query: str
    plain: Run
    progressive: Run
    answer: str  # whether it is the one that was published: yes, no, or nothing

    @property
    def ratio(self) -> float:
        """CPU time of the progressive run over that of the plain one."""
        return self.progressive.cpu_s / self.plain.cpu_s


# -- in the process of one run ------------------------------------------------------------------------------------


def run_plain(file: str, sql: str, threads: int, rounds: int, memory: str) -> Run:
    data = open_data(file, threads, memory)
    found = []
    for _ in range(rounds):
        began_s, began_cpu_s = time.perf_counter(), _cpu_s()
        rows = data.connection.execute(sql).fetchall()
        found.append((_cpu_s() - began_cpu_s, time.perf_counter() - began_s))
    return Run(min(f[0] for f in found), min(f[1] for f in found), _peak_mib(), rows=texts_of(rows))


def run_progressive(file: str, sql: str, threads: int, rounds: int, memory: str) -> Run:
    data = open_data(file, threads, memory)
    found = []
    for _ in range(rounds):
        # The blocks that were read stay in memory, as those of a plain run do, but nothing is known of the data.
        unknown = DuckdbData(data.connection, [Path(file)], "data", data.layout)
        began_s, began_cpu_s = time.perf_counter(), _cpu_s()
        query = Query(sql, unknown)
        times = []
        for answer in query:
            last = answer.rows
            times.append((_cpu_s() - began_cpu_s, time.perf_counter() - began_s))
        found.append((*times[-1], *times[0]))
    peak_mib = _peak_mib()
    plain = data.connection.execute(sql).fetchall()
    return Run(
        *(min(f[k] for f in found) for k in (0, 1)), peak_mib, *(min(f[k] for f in found) for k in (2, 3)), query.how,
        query.mode.value if query.mode is not None else "", same_rows(last, plain), texts_of(last),
    )  # fmt: skip


def run_samples(native: str, prepared: str, number: int, sql: str, threads: int) -> dict[str, Any]:
    """Errors by CPU time: of DuckDB's TABLESAMPLE scaled up, and of the answers of a progressive run."""
    plain, data = open_data(native, threads), open_data(prepared, threads)
    truth = plain.connection.execute(sql).fetchall()
    list(Query(sql, data))  # The first run reads from the disk.
    ours = []
    began_cpu_s = _cpu_s()
    for answer in Query(sql, data):
        ours.append((answer.fraction, _cpu_s() - began_cpu_s, _error(answer.rows, truth)))
    theirs = []
    for percent in PERCENTS:
        costs, errors = [], []
        for seed in range(SEEDS):
            sample = f"lineitem TABLESAMPLE system({percent}%) REPEATABLE ({seed})" if percent < 100 else "lineitem"
            began_cpu_s = _cpu_s()
            found = plain.connection.execute(SAMPLED[number].format(s=sample, w=f"{100 / percent}")).fetchall()
            costs.append(_cpu_s() - began_cpu_s)
            errors.append(_error(found, truth))
        theirs.append((percent / 100, min(costs), sum(errors) / SEEDS))
    return {"query": number, "ours": ours, "tablesample": theirs}


def _error(rows: Any, truth: Any) -> float:
    """The mean relative error of its numbers; 1 for those of a row that is missing."""
    known = {tuple(v for v in row if isinstance(v, str)): row for row in rows}
    errors = []
    for true in truth:
        row = known.get(tuple(v for v in true if isinstance(v, str)))
        for n, value in enumerate(true):
            if not isinstance(value, str):
                estimate = row[n] if row is not None else None
                errors.append(1.0 if estimate is None else abs(float(estimate) - float(value)) / abs(float(value)))
    return sum(errors) / len(errors)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mib() -> float:
    """Of this process since it began: `ru_maxrss` begins with what its parent had when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / (1 << 10)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)  # macOS has it in bytes.


def texts_of(rows: Any) -> list[list[str]]:
    return [["" if value is None else str(value) for value in row] for row in rows]


def same_rows(first: Any, second: Any) -> bool:
    return len(first) == len(second) and all(
        _same(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and bool(a == b)


# -- in the process that measures ---------------------------------------------------------------------------------


def measured(kind: str, *arguments: str) -> Any:
    """A run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.query.cost", "--run", kind, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarks: {' '.join(command[2:6])} failed: {(done.stderr.splitlines() or [''])[-1]}")
    return json.loads(done.stdout)


def tpch_queries() -> dict[int, str]:
    """Their texts, as DuckDB has them."""
    with closing(_with_tpch(":memory:")) as db:
        return dict(db.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())


def _with_tpch(file: str) -> duckdb.DuckDBPyConnection:
    spec = find_spec("duckdb_extension_tpch")
    if spec is None or spec.origin is None:
        raise SystemExit("benchmarks: pip install duckdb-extension-tpch")
    db = duckdb.connect(file, config={"allow_unsigned_extensions": "true", "threads": 2})
    folder = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
    db.execute(f"LOAD '{folder / 'tpch.duckdb_extension'}'")
    return db


def generated(scale: float, native: Path, prepared: Path) -> None:
    """Make what is not there yet: the data, step by step so that they need not fit into memory, and the layout."""
    if not native.exists():
        part = native.with_suffix(".part")
        part.unlink(missing_ok=True)
        with closing(_with_tpch(str(part))) as db:
            steps = max(1, math.ceil(scale))
            for step in range(steps):
                said(f"data: step {step + 1} of {steps}")
                db.execute(
                    f"CALL dbgen(sf = {scale!r}" + (f", children = {steps}, step = {step})" if steps > 1 else ")")
                )
        part.rename(native)
    if not prepared.exists():
        data = open_data(native, 2, may_write=True)
        with closing(data.connection):
            for step in prepare(data, str(native), prepared, keys_of_schema(data)):
                said(f"layout: {step.table} {step.key}")


def said(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


def published(answers: Path | None, number: int, rows: list[list[str]]) -> str:
    """Whether the rows are those of `answers`/qNN.csv, numbers within rounding."""
    if answers is None:
        return ""
    with (answers / f"q{number:02d}.csv").open(newline="", encoding="utf-8") as file:
        expected = list(csv.reader(file, delimiter="|"))[1:]
    alike = len(rows) == len(expected) and all(
        len(a) == len(b) and all(map(_alike, a, b)) for a, b in zip(rows, expected, strict=True)
    )
    return "yes" if alike else "no"


def _alike(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-6)
    except ValueError:
        return a == ("" if b == "NULL" else b)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        yield Path(folder)


def costs(options: argparse.Namespace, native: Path, prepared: Path) -> list[Cost]:
    texts, found = tpch_queries(), []
    base = prepared if options.base == "prepared" else native
    for number in options.queries:
        said(f"q{number}")
        more = (texts[number], str(options.threads), str(options.rounds), options.memory)
        plain = msgspec.convert(measured("plain", str(base), *more), Run)
        ours = prepared if options.layout == "prepared" else native
        progressive = msgspec.convert(measured("progressive", str(ours), *more), Run)
        found.append(Cost(f"q{number}", plain, progressive, published(options.answers, number, progressive.rows)))
    return found


def text_of(found: list[Cost]) -> list[str]:
    titles = (
        "query", "plain CPU s", "wall", "ours CPU s", "wall", "CPU ratio", "first/plain wall", "first/plain CPU",
        "MiB plain", "ours", "ratio", "= plain", "= published", "split",
    )  # fmt: skip
    rows = [
        (
            c.query, f"{c.plain.cpu_s:.3f}", f"{c.plain.wall_s:.3f}", f"{c.progressive.cpu_s:.3f}",
            f"{c.progressive.wall_s:.3f}", f"{c.ratio:.2f}", f"{c.progressive.first_s / c.plain.wall_s:.1%}",
            f"{c.progressive.first_cpu_s / c.plain.cpu_s:.1%}", f"{c.plain.peak_mib:.0f}",
            f"{c.progressive.peak_mib:.0f}", f"{c.progressive.peak_mib / c.plain.peak_mib:.2f}",
            "yes" if c.progressive.is_plain else "NO", c.answer or "-", f"{c.progressive.mode}: {c.progressive.how}",
        )
        for c in found
    ]  # fmt: skip
    ratios, firsts = [c.ratio for c in found], [c.progressive.first_cpu_s / c.plain.cpu_s for c in found]
    memory = [c.progressive.peak_mib / c.plain.peak_mib for c in found]
    return [
        *table(titles, rows),
        f"CPU of the whole run over a plain one: median {median(ratios):.2f}, worst {max(ratios):.2f}",
        f"first answer, CPU over that of a plain run: median {median(firsts):.1%}, worst {max(firsts):.1%}",
        f"peak memory over that of a plain run: median {median(memory):.2f}, worst {max(memory):.2f}",
    ]


def samples_text(found: list[dict[str, Any]]) -> list[str]:
    """Ours, and beside each answer the largest sample that is not dearer."""
    rows = []
    for one in found:
        for fraction, cpu_s, error in one["ours"][:-1]:
            others = [sample for sample in one["tablesample"] if sample[1] <= cpu_s and sample[0] < 1]
            best = max(others, default=None)
            theirs = (f"{best[0]:.1%}", f"{best[1]:.3f}", f"{best[2]:.2%}") if best else ("-", "-", "-")
            rows.append((f"q{one['query']}", f"{fraction:.1%}", f"{cpu_s:.3f}", f"{error:.2%}", *theirs))
    return table(("query", "ours of", "CPU s", "error", "TABLESAMPLE", "CPU s", "error"), rows)


def main(argv: list[str]) -> None:
    """Measure, and print a table; with --json also a file."""
    if argv[:1] == ["--run"]:
        kind, arguments = argv[1], argv[2:]
        if kind == "samples":
            native, prepared, number, sql, threads = arguments
            print(json.dumps(run_samples(native, prepared, int(number), sql, int(threads))))
            return
        file, sql, threads, rounds, memory = arguments
        run = (run_plain if kind == "plain" else run_progressive)(file, sql, int(threads), int(rounds), memory)
        print(msgspec.json.encode(run).decode())
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query.cost", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H")
    parser.add_argument("--queries", type=_numbers, default=list(QUERIES), help="as q1,q6; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="", help="of DuckDB, as 6GB")
    parser.add_argument("--rounds", type=int, default=3, help="the least of so many counts")
    parser.add_argument("--base", choices=("native", "prepared"), default="native", help="what the plain run reads")
    parser.add_argument("--layout", choices=("native", "prepared"), default="prepared", help="what ours reads")
    parser.add_argument("--folder", type=Path, help="where data are kept, and found again")
    parser.add_argument("--answers", type=Path, help="a folder with q01.csv … as DuckDB publishes them")
    parser.add_argument("--against-tablesample", action="store_true", help="errors at equal CPU time, and nothing else")
    parser.add_argument("--json", type=Path, help="also write a file")
    options = parser.parse_args(argv)
    here, command = machine(), " ".join(["python -m benchmarks.query.cost", *argv])
    with _folder(options.folder) as folder:
        native, prepared = (folder / f"tpch-{options.scale:g}{kind}.duckdb" for kind in ("", "-prepared"))
        generated(options.scale, native, prepared)
        print(f"{command}; {here}")
        print(f"data {native.stat().st_size / 1e9:.2f} GB, prepared {prepared.stat().st_size / 1e9:.2f} GB")
        found: list[Any]
        if options.against_tablesample:
            texts = tpch_queries()
            found = [
                measured("samples", str(native), str(prepared), str(n), texts[n], str(options.threads))
                for n in options.queries
                if n in SAMPLED
            ]
            lines = samples_text(found)
        else:
            found = costs(options, native, prepared)
            lines = text_of(found)
    print("\n".join(lines))
    if options.json:
        about = {"command": command, "machine": msgspec.to_builtins(here)}
        options.json.write_bytes(msgspec.json.encode({**about, "rows": msgspec.to_builtins(found)}))


def _numbers(text: str) -> list[int]:
    numbers = [int(name.strip().removeprefix("q")) for name in text.split(",")]
    if unknown := [number for number in numbers if number not in QUERIES]:
        raise argparse.ArgumentTypeError(f"there is no q{unknown[0]}: q1 to q22")
    return numbers


if __name__ == "__main__":
    main(sys.argv[1:])
