"""Queries and data that cannot be run: one line that names what is wrong, before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from hocket.query import Query, QueryError
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet and CSV files, in folders and by themselves."""
    folder = tmp_path_factory.mktemp("sales")
    (folder / "sold").mkdir()
    db = duckdb.connect()
    for part in range(3):
        rows = f"SELECT i AS id, i % 7 AS shop, i * 0.5 AS price FROM range({part * 1000}, {part * 1000 + 1000}) r(i)"
        db.execute(f"COPY ({rows}) TO '{folder}/sold/{part}.parquet'")
    db.execute(f"COPY (SELECT i AS shop, 'shop ' || i AS name FROM range(7) r(i)) TO '{folder}/shops.csv'")
    return folder


@pytest.fixture
def data(sales: Path) -> DuckdbData:
    return open_data(sales)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "one statement, not 0"),
        ("not sql at all", "must be a SELECT|cannot be read"),
        ("SELECT 1; SELECT 2", "one statement, not 2"),
        ("INSERT INTO sold VALUES (1, 2, 3)", "must be a SELECT, not INSERT"),
        ("COPY sold TO '/tmp/x'", "must be a SELECT, not COPY"),
        ("DROP TABLE sold", "must be a SELECT, not DROP"),
        ("SELECT sum(price) FROM solt", "no table 'solt'.*did you mean 'sold'.*tables: shops, sold"),
        ("SELECT sum(prise) FROM sold", "prise.*did you mean 'price'"),
        ("SELECT sum(s.price) FROM sold", "'s'|could not be resolved"),
        ("SELECT * FROM read_csv('/etc/passwd')", "reads its tables only"),
        ("SELECT count(*) FROM '/etc/passwd'", "no table|reads its tables only"),
        ("SELECT count(*) FROM other.sold", "without schema or database"),
        ("SELECT sum(price) FROM sold UNION ALL SELECT 1", "must be one SELECT"),
        ("WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT sum(n) FROM x", "recursive"),
        ("SELECT sum(no_such_function(price)) FROM sold", "no_such_function"),
        ("SELECT sum(name) FROM shops", "cannot be run"),
    ],
)
def test_a_query_that_cannot_be_run_is_refused_in_one_line(data: DuckdbData, sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=f"(?i){said}") as refused:
        Query(sql, data)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


def test_no_function_reads_other_files(data: DuckdbData, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (
        f"SELECT count(*) FROM sold WHERE id IN (SELECT length(content) FROM read_text('{secret}'))",
        f"SELECT count(*) FROM sold, (SELECT 1 FROM glob('{tmp_path}/*')) AS x",
    ):
        with pytest.raises(QueryError):
            list(Query(sql, data))
    for sql in (
        f"SELECT * FROM read_csv('{secret}')",
        f"COPY sold TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/x.db'",
    ):
        with pytest.raises(duckdb.Error):  # The connection itself refuses, whatever the reader of SQL lets through.
            data.connection.execute(sql)
    assert sorted(os.listdir(tmp_path)) == ["secret.csv"]


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("acc >= 101%", "up to 100%"),
        ("acc <= 5%", "acc >= VALUE"),
        ("loss <= 0.1", "acc >= VALUE"),
        ("for 2h", "acc >= VALUE"),
        ("acc >= 95% within 3 epochs", "limit is a time"),
        ("nonsense", "until:"),
    ],
)
def test_a_goal_that_is_none_is_refused(data: DuckdbData, until: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        Query("SELECT shop, sum(price) FROM sold GROUP BY shop", data, until=until)


def test_a_goal_for_what_has_no_interval_is_refused(data: DuckdbData) -> None:
    with pytest.raises(QueryError, match="'top' has no interval"):
        Query("SELECT shop, max(price) AS top, sum(price) FROM sold GROUP BY shop", data, until="acc >= 95%")
    with pytest.raises(QueryError, match="not all there"):
        Query("SELECT id, sum(price) FROM sold GROUP BY id", data, until="acc >= 95%")


def test_weights_are_of_columns_that_there_are(data: DuckdbData) -> None:
    with pytest.raises(QueryError, match="no such column; columns: shop, n"):
        Query("SELECT shop, count(*) AS n FROM sold GROUP BY shop", data, weights={"m": 1.0})
    with pytest.raises(QueryError, match="from 0 up, not -1"):
        Query("SELECT shop, count(*) AS n FROM sold GROUP BY shop", data, weights={"n": -1.0})
    with pytest.raises(QueryError, match=r"confidence must be from 0\.5"):
        Query("SELECT count(*) FROM sold", data, confidence=1.0)


def test_data_that_are_not_there_or_no_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no such file or folder"):
        open_data(tmp_path / "nothing")
    with pytest.raises(QueryError, match="has no tables"):
        open_data(tmp_path)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(QueryError, match="cannot be read"):
        open_data(tmp_path)
    for scale in ("tpch:0", "tpch:x", "tpch:1e9"):
        with pytest.raises(QueryError, match="scale factor"):
            open_data(scale)


def test_a_file_with_damaged_rows_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    duckdb.connect().execute(f"COPY (SELECT i AS id, hash(i) AS v FROM range(20000) r(i)) TO '{file}'")
    whole = file.read_bytes()  # It ends with what is in it, which stays: the file is opened without complaint.
    file.write_bytes(whole[:100] + bytes(len(whole) // 2 - 100) + whole[len(whole) // 2 :])
    for sql in ("SELECT id, count(*) FROM t GROUP BY id", "SELECT sum(v) FROM t", "SELECT median(v) FROM t"):
        with pytest.raises(QueryError, match=r"cannot be read|the query failed") as refused:
            list(Query(sql, tmp_path))
        assert "\n" not in str(refused.value)


def test_what_memory_does_not_hold_is_spilled_to_the_temporary_folder_and_not_to_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "here").mkdir()
    rows = "SELECT i AS id, repeat('x', 100) || hash(i) AS v FROM range(700000) r(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{tmp_path}/data/t.parquet'")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("hocket.runtimes.query.data_sources.gettempdir", lambda: str(tmp_path))
    data = open_data(tmp_path / "data", threads=1, memory="64MB")
    data.connection.execute("CREATE TEMP TABLE large AS SELECT * FROM t")
    (spilled, *_), *_ = data.connection.execute("SELECT path FROM duckdb_temporary_files()").fetchall()
    assert Path(spilled).is_relative_to(tmp_path)
    assert not list((tmp_path / "here").iterdir())
    data.connection.close()
    assert not list(tmp_path.glob("hocket-query-*"))


def test_too_little_memory_is_told_with_what_to_do(tmp_path: Path) -> None:
    duckdb.connect().execute(f"COPY (SELECT i AS id, hash(i) AS v FROM range(300000) r(i)) TO '{tmp_path}/t.parquet'")
    with pytest.raises(QueryError, match=r"memory|Memory.*--memory.*--threads") as refused:
        list(Query("SELECT v, id, count(*) FROM t GROUP BY v, id", open_data(tmp_path, threads=1, memory="2MB")))
    assert "\n" not in str(refused.value)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    db = duckdb.connect()
    file = tmp_path / "t.parquet"
    db.execute(f"COPY (SELECT i AS id, i % 3 AS g FROM range(10000) r(i)) TO '{file}'")
    answers = iter(Query("SELECT g, count(*) FROM t GROUP BY g", tmp_path))
    next(answers)
    db.execute(f"COPY (SELECT i AS id, i % 4 AS g FROM range(20000) r(i)) TO '{file}'")
    with pytest.raises(QueryError, match="was changed while the query read it"):
        list(answers)


def test_parquet_csv_and_database_files_are_read(sales: Path, tmp_path: Path) -> None:
    sql = (
        "SELECT name, count(*) AS n, sum(price) AS sum FROM sold JOIN shops ON sold.shop = shops.shop "
        "GROUP BY name ORDER BY name"
    )
    *_, last = Query(sql, sales)
    db = duckdb.connect(str(tmp_path / "s.duckdb"))
    db.execute(f"CREATE TABLE sold AS SELECT * FROM '{sales}/sold/*.parquet'")
    db.execute(f"CREATE TABLE shops AS SELECT * FROM '{sales}/shops.csv'")
    plain = db.execute(sql).fetchall()
    db.close()
    *_, stored = Query(sql, tmp_path / "s.duckdb")
    assert list(last.rows) == list(stored.rows) == plain
    assert last.is_exact
    assert stored.is_exact
