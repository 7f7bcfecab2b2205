"""SQL that is written less often: in batches it ends with what a plain run says, or it is run at once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp
from tests.unit.runtimes.query.conftest import same_rows

from hocket.query import Query, QueryError
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData
from hocket.runtimes.query.statement import AGGREGATES
from hocket.runtimes.query.unsplit_functions import CHANGING_NAMES

TABLES = """
CREATE TABLE t AS SELECT i AS id, i % 300 AS k, CASE WHEN i % 7 = 0 THEN NULL ELSE i % 5 END AS g,
    ((i * 37) % 101 - 50)::DECIMAL(9, 2) / 4 AS v, TIMESTAMP '2024-01-01' + INTERVAL (i) HOUR AS seen,
    {'a': i % 3, 'b': i} AS pair, [i % 3, i % 2] AS two FROM range(900) r(i);
CREATE TABLE u AS SELECT (i * 3) % 400 AS k, i % 4 AS h, (i * 13) % 17 - 8 AS w FROM range(1200) r(i);
CREATE TABLE d AS SELECT i AS g, 'name ' || i AS name FROM range(4) r(i);
CREATE TABLE odd AS SELECT i % 3 AS "my col", i % 250 AS "Ключ", i AS "order" FROM range(900) r(i);
CREATE TABLE cased (name VARCHAR COLLATE NOCASE, v INTEGER);
INSERT INTO cased SELECT CASE WHEN i < 400 THEN 'a' ELSE 'A' END || i % 400, i FROM range(800) r(i);
CREATE MACRO total(x) AS sum(x);
CREATE SCHEMA other;
CREATE TABLE other.d AS SELECT 1 AS z;
"""


@pytest.fixture(scope="module")
def tables() -> DuckdbData:
    db = duckdb.connect(config={"threads": 1})
    db.execute(TABLES)
    return DuckdbData(db)


SAMPLED, GROUPS, ROWS, AT_ONCE = "sampled", "groups", "rows", ""
QUERIES = {
    # aggregates
    "SELECT stddev(v) FILTER (WHERE g > 2) AS s, var_pop(v) FILTER (WHERE g = 1 OR g = 3) AS p FROM t": SAMPLED,
    "SELECT sum(v) AS v, count(DISTINCT g) FILTER (WHERE v > 0 OR g = 1) AS n FROM t": SAMPLED,
    "SELECT max(id, 3) AS largest FROM t": AT_ONCE,
    "SELECT mean(v) AS m FROM t": SAMPLED,
    "SELECT product(1 + v / 1000) AS p FROM t": AT_ONCE,
    "SELECT k, mad(v) AS m FROM t GROUP BY ALL ORDER BY k": GROUPS,
    "SELECT geomean(id + 1) AS m FROM t": AT_ONCE,
    "SELECT g, total(v) AS v FROM t GROUP BY ALL ORDER BY g": AT_ONCE,
    "SELECT [sum(v), count(*)] AS both, sum(v) AS v FROM t": SAMPLED,
    "SELECT g, repeat('#', count(*)) AS bar FROM t GROUP BY g ORDER BY g": SAMPLED,  # not of an estimate, it turns out
    "SELECT avg(seen) AS seen FROM t": SAMPLED,
    # several columns in one expression
    "SELECT min(COLUMNS('v|id')) FROM t": AT_ONCE,
    "SELECT COLUMNS('v|id') FROM t ORDER BY id": AT_ONCE,
    "SELECT id, unnest(pair) FROM t ORDER BY id": AT_ONCE,
    # blocks that look at rows of several keys
    "SELECT DISTINCT ON (g) g, id FROM t ORDER BY g, id DESC": AT_ONCE,
    "SELECT x.k, sum(v) AS v FROM (SELECT DISTINCT ON (h) k, w FROM u ORDER BY h, w, k) x JOIN t ON t.k = x.k "
    "GROUP BY x.k ORDER BY 1": SAMPLED,
    "SELECT count(*) FROM t WHERE k IN (SELECT k FROM u ORDER BY w, k LIMIT 5)": SAMPLED,
    "SELECT count(*) FROM t WHERE k IN (SELECT k FROM u QUALIFY row_number() OVER (ORDER BY w, k) < 20)": SAMPLED,
    "SELECT sum(v) OVER w AS v FROM t WINDOW w AS (PARTITION BY k) ORDER BY id": AT_ONCE,
    "SELECT g, sum(sum(v)) OVER w AS v FROM t GROUP BY g WINDOW w AS (ORDER BY g) ORDER BY g": AT_ONCE,
    # what is not the same in every batch
    "SELECT count(*) FROM t USING SAMPLE 10 ROWS": AT_ONCE,
    "SELECT count(*) FROM t TABLESAMPLE 100 ROWS": AT_ONCE,
    "WITH x AS (SELECT k FROM t) SELECT count(*) FROM x TABLESAMPLE 100 ROWS": AT_ONCE,
    "SELECT count(*) FROM (SELECT current_timestamp AS seen, k FROM t GROUP BY ALL) GROUP BY seen": AT_ONCE,
    "SELECT count(*) FROM (SELECT now() AS seen, k FROM t GROUP BY ALL) GROUP BY seen": AT_ONCE,
    # FROM
    "SELECT count(*) FROM t SEMI JOIN u ON t.k = u.k AND u.w > 6": SAMPLED,
    "SELECT count(*) FROM t ANTI JOIN u ON t.k = u.k AND u.w > 0": SAMPLED,
    "SELECT count(*) FROM d LEFT JOIN (t JOIN u ON t.k = u.k) ON d.g = t.g": AT_ONCE,
    "SELECT x.b, count(*) FROM d AS x(a, b) GROUP BY x.b ORDER BY 1": AT_ONCE,
    "SELECT x.y, count(*) FROM t, unnest([1, 2]) AS x(y) GROUP BY x.y ORDER BY 1": AT_ONCE,
    "SELECT x.y, count(*) FROM t, (VALUES (1), (2)) AS x(y) GROUP BY x.y ORDER BY 1": AT_ONCE,
    "SELECT x.name, sum(v) AS v FROM t JOIN d AS x ON t.g = x.g WHERE x.name <> 'name 1' AND t.k IN "
    "(SELECT x.k FROM u AS x WHERE x.w > 3) GROUP BY x.name ORDER BY 1": SAMPLED,
    # names
    "SELECT g, sum(v) AS total, count(*) AS a0 FROM t GROUP BY g ORDER BY -total / a0, g": SAMPLED,
    "SELECT k, sum(v) AS c0 FROM t GROUP BY k ORDER BY abs(c0), k": GROUPS,
    "SELECT 5 AS five, -3 AS three, g, sum(v) AS v FROM t GROUP BY ALL ORDER BY ALL": SAMPLED,
    "SELECT 3 AS three, g, median(v) AS v FROM t GROUP BY ALL ORDER BY ALL": AT_ONCE,
    "WITH Large AS (SELECT * FROM t WHERE v > 0) SELECT count(*) FROM large": SAMPLED,
    "WITH x AS (SELECT 1 AS a) SELECT (WITH x AS (SELECT 2 AS a) SELECT a FROM x) AS a, sum(v) AS v FROM t": SAMPLED,
    "SELECT * FROM odd ORDER BY 3": ROWS,
    'SELECT "Ключ", count(*) FROM odd GROUP BY 1 ORDER BY 1': GROUPS,
    "SELECT * FROM d ORDER BY g": ROWS,  # and not of that in the other schema
    "SELECT lower(name) AS name, sum(v) AS v FROM cased GROUP BY cased.name ORDER BY v": SAMPLED,
    "SELECT count(*) FROM cased AS a JOIN cased AS b ON a.name = b.name": SAMPLED,
}


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.usefixtures("small_keys")
def test_the_last_answer_is_the_plain_one(tables: DuckdbData, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.runtimes.query.split_key.LEAST_VALUES", 100)
    monkeypatch.setattr("hocket.runtimes.query.split_key.MANY_GROUPS", 200)
    plain = tables.connection.execute(sql).fetchall()
    query = Query(sql, tables)
    assert (query.mode.value if query.mode is not None else "") == QUERIES[sql], query.how
    *_, last = query
    assert last.is_exact
    assert same_rows(last.rows, plain), (query.how, last.rows[:3], plain[:3])


def test_what_batches_cannot_compute_is_said_with_its_answer(tables: DuckdbData) -> None:
    query = Query("SELECT g, repeat('#', count(*)) AS bar FROM t GROUP BY g", tables)
    (answer,) = query
    assert "in batches it cannot be computed (Binder Error: No function matches" in answer.how
    assert query.mode is None
    (again,) = query
    assert sorted(again.rows, key=str) == sorted(answer.rows, key=str)


def test_functions_of_duckdb_that_aggregate_or_change_are_known_as_such() -> None:
    db = duckdb.connect()
    found = "SELECT DISTINCT function_name, len(parameters) FROM duckdb_functions() WHERE"
    windows = {"fill", "rank_dense", "row_number"}  # DuckDB has them only over windows
    for name, count in db.execute(f"{found} function_type = 'aggregate'").fetchall():
        if isinstance(_called(name, count), exp.Anonymous) and name not in windows:
            assert name in AGGREGATES | {"mean"}
    aggregating = "macro_definition SIMILAR TO '.*\\b(sum|avg|string_agg|geomean|weighted_avg|json_group_array)\\(.*'"
    for name, count in db.execute(f"{found} function_type = 'macro' AND internal AND {aggregating}").fetchall():
        assert not isinstance(_called(name, count), exp.Anonymous) or name in AGGREGATES
    of_session = {"current_connection_id", "current_query", "current_query_id", "current_schemas", "in_search_path"}
    of_session |= {"current_database", "current_schema", "current_transaction_id", "error", "setseed", "write_log"}
    for name, count in db.execute(f"{found} stability <> 'CONSISTENT'").fetchall():
        if isinstance(_called(name, count), exp.Anonymous) and name not in of_session | {"stats"}:
            assert name in CHANGING_NAMES


def _called(name: str, count: int) -> exp.Expr:
    call = f"SELECT {name}({', '.join('wxyz'[:count])})"
    return sqlglot.parse_one(call, read="duckdb", error_level=sqlglot.ErrorLevel.IGNORE).expressions[0]


def test_columns_of_parquet_files_may_have_the_names_that_rows_are_told_apart_by(tmp_path: Path) -> None:
    rows = "SELECT i % 200 AS rowid, i AS v, i AS file_row_number, 'f' AS filename FROM range(600) r(i)"
    for table, shown in (("a", "rowid, v"), ("b", "filename, v"), ("c", "file_row_number, v")):
        duckdb.connect().execute(f"COPY (SELECT {shown} FROM ({rows})) TO '{tmp_path}/{table}.parquet'")
    data = open_data(tmp_path, threads=1)
    for sql in (
        "SELECT rowid, sum(v) AS v FROM a GROUP BY rowid ORDER BY rowid",
        "SELECT count(*) AS n FROM a JOIN a AS b ON a.rowid = b.rowid",
        "SELECT filename, sum(v) AS v FROM b GROUP BY filename",
        "SELECT count(*) AS n, sum(file_row_number) AS v FROM c",
    ):
        query = Query(sql, data)
        assert query.mode is not None
        assert same_rows(list(query)[-1].rows, data.connection.execute(sql).fetchall()), query.how


def test_rows_of_a_table_with_a_column_of_that_name_are_split_by_all_columns() -> None:
    db = duckdb.connect()
    db.execute("CREATE TABLE a AS SELECT 7 AS rowid, i AS v FROM range(600) r(i)")
    first = next(iter(Query("SELECT count(*) AS n FROM a", DuckdbData(db))))
    assert 0 < first.rows[0][0] < 6000


def test_a_folder_of_files_of_two_kinds_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "sold").mkdir()
    duckdb.connect().execute(f"COPY (SELECT 1 AS a) TO '{tmp_path}/sold/a.parquet'")
    (tmp_path / "sold" / "b.csv").write_text("a\n2\n")
    with pytest.raises(QueryError, match=r"table 'sold' has \.parquet and \.csv files"):
        open_data(tmp_path)


def test_points_in_time_have_their_zone(tmp_path: Path) -> None:
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    at = "TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (i) HOUR AS seen"
    db.execute(f"COPY (SELECT {at} FROM range(600) r(i)) TO '{tmp_path}/t.parquet'")
    *_, last = Query("SELECT max(seen) AS seen FROM t", tmp_path)
    assert last.rows[0][0].isoformat() == "2024-01-25T23:00:00+00:00"


def test_ctrl_c_while_duckdb_is_at_work_is_a_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    db = duckdb.connect(config={"threads": 1})
    db.execute("CREATE TABLE t AS SELECT i AS id FROM range(100000) r(i)")
    query = Query("SELECT count(*) FROM t AS a, t AS b WHERE a.id * 7 % 5 < b.id % 3", DuckdbData(db))  # takes minutes
    add_batch = query.data.add_batch

    def interrupted(*given: Any, **more: Any) -> int:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        return add_batch(*given, **more)

    monkeypatch.setattr(query.data, "add_batch", interrupted)
    with pytest.raises(KeyboardInterrupt) as told:
        list(query)
    assert "Query interrupted" in str(told.value.__cause__)


def test_rows_of_a_view_are_not_split_if_many_are_alike() -> None:
    db = duckdb.connect(config={"threads": 1})
    db.execute("CREATE TABLE t AS SELECT CASE WHEN i % 10 = 0 THEN i ELSE 1 END AS a FROM range(20000) r(i)")
    db.execute("CREATE VIEW alike AS SELECT a FROM t")
    db.execute("CREATE VIEW different AS SELECT a, row_number() OVER (ORDER BY a) AS n FROM t")
    data = DuckdbData(db)
    (only,) = Query("SELECT count(*) AS n FROM alike", data, until="acc >= 90%")  # It said 1,976 ± 157 of a quarter.
    assert only.rows == ((20000,),)
    assert "90.0% of the rows of alike are alike, too many for one bucket" in only.how
    for table in ("t", "different"):
        assert Query(f"SELECT count(*) AS n FROM {table}", data).mode is not None
