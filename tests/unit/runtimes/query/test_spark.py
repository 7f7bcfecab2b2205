"""Queries that Spark computes: their answers are those of DuckDB. One session for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")
pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'hocket[spark]'")

import duckdb
from tests.unit.runtimes.query.conftest import same_rows

from hocket.query import Query, QueryError
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData
from hocket.runtimes.query.prepared_layout import ENDS, UNITS
from hocket.runtimes.query.spark_data import SparkData, open_spark_data
from hocket.runtimes.query.spark_files import remote_tables
from hocket.runtimes.query.spark_session import SparkConnection, java_home

# Many small queries: to compile each would take longer than to interpret it.
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkConnection]:
    try:
        java_home()
    except QueryError as error:
        pytest.skip(str(error))
    session = SparkConnection("local[1]", SMALL)
    process = session._process
    yield session
    session.close()
    assert process.poll() is not None, "the driver of Spark is still there"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sales with all that differs: NULLs, decimals, negative and floating-point numbers, dates, wide integers."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "sold [1]").mkdir()
    db = duckdb.connect()
    for part in range(2):
        db.execute(
            f"""COPY (SELECT i AS id, i % 97 AS buyer,
            CASE WHEN i % 11 = 0 THEN NULL ELSE (i % 1000 - 300) / 7 END::DECIMAL(12, 2) AS price,
            i % 5 - 2 AS n, sqrt(i % 13)::DOUBLE AS weight, DATE '2024-01-31' + (i % 400)::INT AS day,
            TIMESTAMP '2024-01-31 23:30:00' + INTERVAL (i % 50) HOUR AS sold_at, i % 3 = 0 AS is_new,
            ['a_b', 'a%b', 'A\\b', NULL, ''][i % 5 + 1] AS word, (hash(i) // 2)::UBIGINT AS code
            FROM range({part * 3000}, {part * 3000 + 3000}) r(i)) TO '{folder}/sold [1]/{part}.parquet'"""
        )
    names = ('"a ""b"""', '""', "", "c")
    lines = (f"{i};{names[i % 4]};2020-01-{i % 28 + 1:02d};{i}.5\n" for i in range(97))
    (folder / "buyers.csv").write_text("buyer;name;since;most\n" + "".join(lines))
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[DuckdbData]:
    data = open_data(folder)
    yield data
    data.close()


@pytest.fixture(scope="module")
def shop(spark: SparkConnection, folder: Path) -> Iterator[SparkData]:
    data = open_spark_data(folder, spark)
    yield data
    data.close()


def test_what_the_engines_compute_otherwise_gives_the_same(shop: SparkData, plain: DuckdbData) -> None:
    sql = """SELECT id, n / 3, price / 3, price / n, n // 2, n % 2, id % n, price * price * 1.5, price + 1, -price,
        (price)::INT, weight::INT, (n > 0)::INT, price::DOUBLE, n::VARCHAR, round(price, 1), floor(price), abs(n),
        day + INTERVAL 1 MONTH, extract(year FROM sold_at), month(day), word LIKE 'a_b', word LIKE '%\\b',
        word ILIKE 'a%', upper(word), length(word), substring(word, 2, 1), word || 'x', coalesce(price, 0),
        nullif(n, 0), is_new, code, CASE WHEN price > 10 THEN 'high' WHEN price IS NULL THEN NULL ELSE 'low' END,
        price IN (1, NULL), sold_at, day, greatest(n, 1, NULL), n IS DISTINCT FROM NULL,
        avg(price) OVER (PARTITION BY n), lag(price) OVER (ORDER BY id),
        date_trunc('week', sold_at), date_trunc('day', sold_at), (SELECT avg(price) FROM "sold [1]")
        FROM "sold [1]" WHERE day >= '2024-03-01' AND id < 700 ORDER BY word DESC, id"""
    query = Query(sql, shop, exact=True)
    (answer,) = query
    expected = plain.connection.execute(sql)
    assert answer.columns == tuple(column[0] for column in expected.description)
    assert same_rows(answer.rows, expected.fetchall())


@pytest.mark.parametrize(
    ("sql", "how"),
    [
        (  # Sums of all kinds, merged from parts with intervals.
            """SELECT is_new, count(*) AS rows, count(price), sum(price) AS price, avg(price), avg(n), avg(weight),
            min(day), max(word), sum(n) FILTER (n > 0),
            avg(price) FILTER (n = 0), count(DISTINCT n), stddev(weight), sum(price) / sum(n)
            FROM "sold [1]" GROUP BY is_new ORDER BY is_new""",
            "by rows of sold [1]",
        ),
        (  # A block that is computed once, and is needed by batches and by answers.
            """SELECT name, count(*) AS n, sum(s.price * b.most) AS total
            FROM "sold [1]" AS s, buyers AS b WHERE s.buyer = b.buyer
            AND s.price < (SELECT avg(price) * 4 FROM "sold [1]" WHERE n > 0) GROUP BY name
            HAVING count(*) > (SELECT min(buyer) FROM buyers) ORDER BY name""",
            "sold [1]",
        ),
        (  # Groups that are complete.
            """SELECT id, sum(price) AS price, avg(price), count(DISTINCT word) FROM "sold [1]" WHERE buyer IN
            (SELECT buyer FROM buyers WHERE since > DATE '2020-01-14')
            GROUP BY id ORDER BY price DESC NULLS LAST, id LIMIT 9""",
            "by sold [1].id",
        ),
    ],
)
@pytest.mark.usefixtures("small_keys")
def test_batches_by_spark_end_with_the_answer_of_duckdb(shop: SparkData, plain: DuckdbData, sql: str, how: str) -> None:
    query = Query(sql, shop)
    assert query.mode is not None, query.how
    assert how in query.how
    assert "computed by Spark at local[1]" in query.how
    answers = list(query)
    assert [answer.fraction for answer in answers] == [end / UNITS for end in ENDS]
    assert same_rows(answers[-1].rows, plain.connection.execute(sql).fetchall())


@pytest.mark.usefixtures("small_keys")
def test_intervals_are_those_of_estimates(shop: SparkData, plain: DuckdbData) -> None:
    sql = 'SELECT is_new, count(*) AS n FROM "sold [1]" GROUP BY is_new ORDER BY is_new'
    half = next(answer for answer in Query(sql, shop) if answer.fraction == 0.5)
    for row, widths, exact in zip(half.rows, half.half_widths, plain.connection.execute(sql).fetchall(), strict=True):
        assert widths[1] is not None
        assert 0 < abs(row[1] - exact[1]) < 3 * widths[1]
    again = next(answer for answer in Query(sql, shop) if answer.fraction == 0.5)
    assert again.rows == half.rows  # Buckets are the same in every run.


@pytest.mark.parametrize("number", [17])  # `python -m benchmarks.query.spark` runs all 22
@pytest.mark.usefixtures("small_keys")
def test_a_query_of_tpch_ends_with_the_plain_answer(spark: SparkConnection, tpch: DuckdbData, number: int) -> None:
    (sql,) = tpch.connection.execute("SELECT query FROM tpch_queries() WHERE query_nr = ?", [number]).fetchone()
    data = open_spark_data("tpch:0.01", spark)
    *_, last = Query(sql, data)
    data.close()
    assert last.is_exact
    assert same_rows(last.rows, tpch.connection.execute(sql).fetchall())


def test_a_state_goes_on_and_is_not_one_of_duckdb(spark: SparkConnection, folder: Path, tmp_path: Path) -> None:
    sql = 'SELECT is_new, count(*) AS n FROM "sold [1]" GROUP BY is_new ORDER BY is_new'
    state = tmp_path / "state"
    data = open_spark_data(folder, spark, state=state)
    first = Query(sql, data, state=state)
    answers = iter(first)
    seen = [next(answers) for _ in range(3)]
    first.close()
    again = Query(sql, data, state=state)
    assert next(iter(again)).rows == seen[-1].rows
    again.close()
    data.close()
    with pytest.raises(QueryError, match="is of other data"):
        list(Query(sql, folder, state=state))


@pytest.mark.usefixtures("small_keys")
def test_a_file_that_is_changed_or_gone_is_told(spark: SparkConnection, tmp_path: Path) -> None:
    db, file = duckdb.connect(), tmp_path / "t.parquet"
    db.execute(f"COPY (SELECT i AS id, i % 3 AS g FROM range(2000) r(i)) TO '{file}'")
    data = open_spark_data(tmp_path, spark)
    answers = iter(Query("SELECT g, count(*) FROM t GROUP BY g", data))
    next(answers)
    os.utime(file, ns=(1, 1))
    with pytest.raises(QueryError, match="was changed while the query read it"):
        list(answers)
    file.unlink()
    with pytest.raises(QueryError, match=f"the query failed: '{file}' is gone") as refused:
        list(Query("SELECT max(id + g) FROM t", data, exact=True))
    assert "\n" not in str(refused.value)
    data.close()


def test_what_fails_within_spark_is_told_in_one_line(shop: SparkData) -> None:
    for sql, said in (
        ('SELECT sum(id * 3000000000000000 * 5) FROM "sold [1]"', "overflow"),
        ('SELECT weight::VARCHAR FROM "sold [1]"', "a floating-point number as text is not run by Spark"),
        ('SELECT median(price) FROM "sold [1]"', "MEDIAN.*is not run by Spark"),
    ):
        with pytest.raises(QueryError, match=said) as refused:
            list(Query(sql, shop, exact=True))
        assert "\n" not in str(refused.value)


def test_tables_at_a_url_are_found_by_spark(spark: SparkConnection, folder: Path) -> None:
    found = remote_tables(spark, f"file://{folder}")
    assert {name: (table.format, len(table.files)) for name, table in found.items()} == {
        "buyers": ("csv", 1),
        "sold [1]": ("parquet", 2),
    }
    assert found["sold [1]"].read(spark).count() == 6000
    with pytest.raises(QueryError, match=r"data 'nosuch://x/y' cannot be read: .*nosuch"):
        open_spark_data("nosuch://x/y", spark)


def test_a_second_session_is_refused(spark: SparkConnection) -> None:  # noqa: ARG001 - it is the first
    with pytest.raises(QueryError, match="has a session of Spark already"):
        SparkConnection("local[1]")
