"""Prepared data: each batch reads its own part, answers stay the same, and a file is there whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from tests.unit.runtimes.query.conftest import same_rows

from hocket.query import Query, QueryError
from hocket.runtimes.query import prepare as preparation
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData, unit_of_hash
from hocket.runtimes.query.prepare import LayoutStep, WrittenCopy, key_named, keys_of_queries, keys_of_schema, prepare
from hocket.runtimes.query.prepared_layout import ENDS, UNITS, LayoutKey

SALES, LINES = 30_000, 90_000
TOTALS = (
    "SELECT region, count(*) AS n, sum(price) AS total FROM sales JOIN lines ON id = sale GROUP BY region ORDER BY 1"
)
ONE_TABLE = "SELECT region, count(*) AS n FROM sales GROUP BY region ORDER BY region"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    db = duckdb.connect()
    tables = {
        "sales": f"SELECT i AS id, i % 4 AS region, (i * 7919) % 9000 AS customer_id FROM range({SALES}) r(i)",
        "lines": f"SELECT i % {SALES} AS sale, (i % 97)::DECIMAL(9, 2) AS price FROM range({LINES}) r(i)",
        "customers": "SELECT i::INTEGER AS customer_id, 'name ' || i AS name FROM range(9000) r(i)",
    }
    for name, rows in tables.items():
        db.execute(f"COPY ({rows}) TO '{folder}/{name}.parquet'")
    return folder


@pytest.fixture(autouse=True)
def _tables_are_small(monkeypatch: pytest.MonkeyPatch, small_keys: None) -> None:  # noqa: ARG001
    monkeypatch.setattr(preparation, "_FEW_ROWS", 5000)


def lay_out(source: Path | str, out: Path, *keys: str) -> list[WrittenCopy]:
    data = open_data(source, may_write=True)
    with closing(data.connection):
        steps = list(prepare(data, str(source), out, [key_named(data, key) for key in keys]))
    assert [step.done for step in steps if isinstance(step, LayoutStep)][-1] == pytest.approx(steps[0].total)  # type: ignore[union-attr]
    return [step for step in steps if isinstance(step, WrittenCopy)]


@pytest.fixture(scope="module")
def laid_out(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to be read or copied."""
    out = tmp_path_factory.mktemp("prepared") / "sales.duckdb"
    lay_out(source, out, "sales.id", "lines.sale")
    return out


@pytest.fixture(scope="module")
def prepared(laid_out: Path) -> Iterator[DuckdbData]:
    data = open_data(laid_out)
    yield data
    data.connection.close()


def test_the_parts_of_a_copy_are_the_table(source: Path, prepared: DuckdbData) -> None:
    db = prepared.connection
    digest = "SELECT count(*), sum(hash(sale, price)), min(sale), max(price)"
    plain = duckdb.connect().execute(f"{digest} FROM '{source}/lines.parquet'").fetchall()
    assert db.execute(f"{digest} FROM lines").fetchall() == plain
    start = 0
    for number, end in enumerate(ENDS, 1):
        part = f'hocket_layout."lines by sale, {number} of {len(ENDS)}"'
        unit = unit_of_hash("hash(sale)", 0)
        units = f"SELECT min(hocket_unit), max(hocket_unit), count(*) FROM {part} WHERE {unit} = hocket_unit"
        (first, last, count) = db.execute(units).fetchone() or ()
        assert (first, last) == (start, end - 1)
        assert (count,) == db.execute(f"SELECT count(*) FROM {part}").fetchone()
        start = end


@pytest.mark.parametrize("sql", [TOTALS, ONE_TABLE, "SELECT * FROM sales WHERE id < 50 ORDER BY id"])
def test_a_query_reads_its_parts_and_ends_with_the_plain_answer(source: Path, prepared: DuckdbData, sql: str) -> None:
    query = Query(sql, prepared)
    assert query.how.endswith("; prepared"), query.how
    answers = list(query)
    assert len(answers) == 6
    plain = open_data(source)
    *_, last = Query(sql, plain)
    assert same_rows(answers[-1].rows, last.rows)
    assert answers[-1].columns == last.columns


def test_a_batch_scans_no_other_rows(prepared: DuckdbData) -> None:
    query = Query(TOTALS, prepared)
    batch = query._answers._sql.batch.of(0, ENDS[0] - 1)  # type: ignore[union-attr]
    (_, told) = prepared.connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {batch}").fetchone() or ()
    assert 0 < json.loads(told)["cumulative_rows_scanned"] < (SALES + LINES) * 1.5 * ENDS[0] / UNITS


def test_a_query_by_another_key_works_and_says_its_price(source: Path, prepared: DuckdbData) -> None:
    sql = "SELECT customer_id, count(*) AS n, sum(id) AS ids FROM sales GROUP BY customer_id ORDER BY customer_id"
    query = Query(sql, prepared)
    assert query.how == "by sales.customer_id; unprepared: each batch scans the whole table"
    *_, last = query
    *_, plain = Query(sql, source)
    assert last.rows == plain.rows


def test_tables_without_a_key_are_laid_out_by_rows_or_left_as_they_are(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_FEW_ROWS", 10_000)
    monkeypatch.setattr(preparation, "_SORTED_AT_ONCE", 7000)  # so that parts are written in several steps
    laid = lay_out(source, tmp_path / "rows.duckdb")
    assert [(one.table, one.key, one.rows) for one in laid] == [
        ("customers", "", 9000), ("lines", "rowid", LINES), ("sales", "rowid", SALES)
    ]  # fmt: skip
    assert all(one.size_bytes > 0 for one in laid)
    query = Query(ONE_TABLE, tmp_path / "rows.duckdb")
    assert query.how == "by rows of sales; prepared"
    *_, last = query
    assert [row[1] for row in last.rows] == [SALES // 4] * 4


def test_a_small_table_with_a_key_is_there_as_it_is_too_and_a_large_one_is_a_view(source: Path, tmp_path: Path) -> None:
    laid = lay_out(source, tmp_path / "sales.duckdb", "customers.customer_id", "sales.customer_id")
    keys = [(one.table, one.key) for one in laid]
    assert keys == [
        ("customers", ""), ("customers", "customer_id"), ("lines", "rowid"), ("sales", "customer_id")
    ]  # fmt: skip
    data = open_data(tmp_path / "sales.duckdb")
    named = "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    assert data.connection.execute(named).fetchall() == [("lines",), ("sales",)]
    assert data.connection.execute("SELECT count(*), sum(customer_id) FROM customers").fetchall() == [
        (9000, sum(range(9000)))
    ]
    for sql in (
        "SELECT count(*) AS n FROM sales JOIN customers USING (customer_id)",  # reads its parts
        "SELECT name, sum(price) AS total FROM lines, sales, customers WHERE sale = id "
        "AND sales.customer_id = customers.customer_id GROUP BY name ORDER BY 2 DESC, 1 LIMIT 3",  # reads it whole
    ):
        *_, last = Query(sql, data)
        assert last.rows == tuple(open_data(source).connection.execute(sql).fetchall())


def test_keys_are_found_in_the_schema(source: Path) -> None:
    data = open_data(source)
    # `id` and `sale` have no name in common; customers are found, as integers of two widths.
    assert keys_of_schema(data) == [LayoutKey("customers", "customer_id"), LayoutKey("sales", "customer_id")]


def test_keys_are_found_in_queries(source: Path) -> None:
    data = open_data(source)
    assert set(keys_of_queries(data, [TOTALS, ONE_TABLE])) == {LayoutKey("sales", "id"), LayoutKey("lines", "sale")}
    assert keys_of_queries(data, [ONE_TABLE]) == [LayoutKey("sales", "rowid")]
    assert keys_of_queries(data, ["SELECT median(price) FROM lines"]) == [LayoutKey("lines", "rowid")]


@pytest.mark.parametrize(
    ("key", "said"),
    [("sails.id", "no table 'sails'; tables: customers, lines, sales"), ("sales.no", "no such column; columns: id, ")],
)
def test_a_key_that_is_not_there_is_refused(source: Path, key: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        key_named(open_data(source), key)


def test_what_is_not_finished_is_not_there(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "sales.duckdb"
    data = open_data(source, may_write=True)
    steps = prepare(data, str(source), out, [])
    next(steps)
    assert not out.exists()
    steps.close()  # as Ctrl-C does
    data.connection.close()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_run_left_is_removed_by_the_next(source: Path, tmp_path: Path) -> None:
    for name in (".sales.duckdb.part", ".sales.duckdb.part.wal"):
        (tmp_path / name).write_bytes(b"half a file")
    lay_out(source / "customers.parquet", tmp_path / "sales.duckdb")
    assert os.listdir(tmp_path) == ["sales.duckdb"]


def test_a_full_disk_is_told_in_one_line_and_leaves_the_old_file(source: Path, laid_out: Path, tmp_path: Path) -> None:
    out = Path(shutil.copy(laid_out, tmp_path))
    before = out.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # a file that cannot grow, as on a full disk
    try:
        with pytest.raises(QueryError, match=r"sales\.duckdb' cannot be written: ") as refused:
            lay_out(source, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(refused.value)
    assert out.read_bytes() == before
    assert os.listdir(tmp_path) == ["sales.duckdb"]


def test_a_source_that_changed_since_is_said(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("sales.parquet", "customers.parquet"):
        shutil.copy(source / name, folder)
    lay_out(folder, tmp_path / "sales.duckdb")
    assert "changed" not in Query(ONE_TABLE, tmp_path / "sales.duckdb").how
    os.utime(folder / "customers.parquet", ns=(1, 1))
    assert Query(ONE_TABLE, tmp_path / "sales.duckdb").how.endswith(
        f"; prepared from '{folder}', where 'customers.parquet' was changed since"
    )
    (folder / "customers.parquet").unlink()  # It may lie elsewhere now; the copy is as good as it was.
    assert "changed" not in Query(ONE_TABLE, tmp_path / "sales.duckdb").how


def test_files_that_must_not_be_written_are_refused(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine.duckdb"
    with closing(duckdb.connect(str(other))) as db:
        db.execute("CREATE TABLE mine AS SELECT i FROM range(10) r(i)")
    for out, said in (
        (other, "was not made by `hocket query prepare`"),
        (tmp_path / "no" / "folder.duckdb", "in a folder that exists"),
        (tmp_path / "sales.parquet", "must end with .duckdb, "),
    ):
        with pytest.raises(QueryError, match=said):
            lay_out(source, out)
    with pytest.raises(QueryError, match="another file than the one that is read"):
        lay_out(other, other)


def test_a_format_that_is_not_known_is_refused(laid_out: Path, tmp_path: Path) -> None:
    shutil.copy(laid_out, tmp_path)
    with closing(duckdb.connect(str(tmp_path / "sales.duckdb"))) as db:
        db.execute("UPDATE hocket_layout.manifest SET format = 99")
    with pytest.raises(QueryError, match=r"has format 99 .* make it again with `hocket query prepare`"):
        open_data(tmp_path / "sales.duckdb")


def test_another_order_of_the_data_is_not_read_from_the_parts(prepared: DuckdbData) -> None:
    prepared.seed = 7
    try:
        query = Query(ONE_TABLE, prepared)
        assert "unprepared" in query.how
        *_, last = query
    finally:
        prepared.seed = 0
    assert [row[1] for row in last.rows] == [SALES // 4] * 4
