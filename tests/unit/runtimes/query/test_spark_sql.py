"""DuckDB's SQL in Spark's dialect, and what is refused, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")

from sqlglot import parse_one

from hocket.query import Query, QueryError
from hocket.runtimes.query import spark_session
from hocket.runtimes.query.spark_files import is_remote, local_tables, tables_by_path
from hocket.runtimes.query.spark_session import explained, java_home, require_master
from hocket.runtimes.query.spark_sql import refuse_what_differs, spark_sql


def translated(sql: str) -> str:
    return (
        spark_sql(f"SELECT {sql} FROM t", lambda _schema, name: name).removeprefix("SELECT ").removesuffix(" FROM `t`")
    )


@pytest.mark.parametrize(
    ("duckdb", "spark"),
    [
        ("a / 2", "(CAST(`a` AS DOUBLE) / CAST(2 AS DOUBLE))"),
        ("a % 7", "((`a`) % 7)"),
        ("a % b", "((`a`) % NULLIF(`b`, 0))"),
        ("avg(a)", "(CAST(SUM(`a`) AS DOUBLE) / NULLIF(COUNT(`a`), 0))"),
        ("avg(a) OVER (PARTITION BY b)", "AVG(CAST(`a` AS DOUBLE)) OVER (PARTITION BY `b`)"),
        ("a LIKE 'x%'", "`a` LIKE 'x%'"),
        ("date_trunc('month', d)", "(CAST(TRUNC(CAST(`d` AS DATE), 'MONTH') AS TIMESTAMP_NTZ))"),
        ("date_trunc('day', d)", "(CAST(CAST(`d` AS DATE) AS TIMESTAMP_NTZ))"),
        ("(a > b)::INT", "CAST((`a` > `b`) AS INT)"),
        (
            "hocket_unit_of_hash(hash(k::BIGINT), 0)",
            "(CAST(PMOD(XXHASH64(CAST(`k` AS BIGINT)), 1024) AS INT))",
        ),
        ("hocket_unit_of_hash(hash(a, b), 7)", "(CAST(PMOD(XXHASH64(`a`, `b`, 7), 1024) AS INT))"),
    ],
)
def test_what_spark_computes_otherwise_is_written_otherwise(duckdb: str, spark: str) -> None:
    assert translated(duckdb) == spark


def test_a_backslash_escapes_nothing_in_a_pattern() -> None:
    assert "ESCAPE" in translated(r"a LIKE '10\%'")
    assert "ESCAPE" in translated("a LIKE b")
    assert translated("a LIKE '10!%' ESCAPE '!'").count("ESCAPE") == 1


def test_tables_have_the_names_that_spark_has_for_them() -> None:
    sql = 'SELECT x.a FROM hocket_files."my table" AS x, u AS u WHERE x.a IN (SELECT b FROM u)'
    found = spark_sql(sql, lambda schema, name: f"{schema}-{name}")
    assert "FROM `hocket_files-my table` AS `x`, `-u` AS `u`" in found.replace(" CROSS JOIN", ",")
    assert "FROM `-u`)" in found


@pytest.mark.parametrize(
    "sql",
    [
        "median(a)",
        "now()",
        "strftime(d, '%Y')",
        "hash(a)",
        "random()",
        "substring(a, 0, 2)",
        "extract(dow FROM d)",
        "date_trunc('hour', d)",
    ],
)
def test_what_may_mean_something_else_is_refused(sql: str) -> None:
    with pytest.raises(QueryError, match=r"is not run by Spark.*use DuckDB") as refused:
        refuse_what_differs(parse_one(f"SELECT {sql} FROM t", dialect="duckdb"))
    assert sql.partition("(")[0].lower() in str(refused.value).lower()


def test_a_database_file_is_refused_with_how_to_export_it(tmp_path: Path) -> None:
    (tmp_path / "sales.duckdb").write_bytes(b"")
    with pytest.raises(QueryError, match=r"does not read DuckDB files.*EXPORT DATABASE 'FOLDER' \(FORMAT parquet\)"):
        local_tables(str(tmp_path / "sales.duckdb"))
    with pytest.raises(QueryError, match="no such file or folder"):
        local_tables(str(tmp_path / "nothing"))


def test_csv_that_spark_would_read_otherwise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("day,n\n25.12.2024,1\n26.12.2024,2\n")
    with pytest.raises(QueryError, match="Parquet only"):
        local_tables(str(tmp_path))


def test_tables_at_a_url_are_files_and_folders_of_files() -> None:
    root = "hdfs://hub:9000/sales"
    files = ["/sold/b=1/1.parquet", "/sold/b=2/2.parquet", "/shops.csv", "/sold/x.csv", "/_old/y.parquet", "/notes.txt"]
    found = tables_by_path(root, [root + file for file in files])
    assert found == {"sold": [root + files[0], root + files[1]], "shops": [root + files[2]]}
    assert tables_by_path(f"{root}/shops.csv", [f"{root}/shops.csv"]) == {"shops": [f"{root}/shops.csv"]}
    assert is_remote("s3a://bucket/x")
    assert not is_remote("file:///x")
    assert not is_remote("/x")


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("hub:7077", r"must be spark://HOST:PORT, local\[N\], yarn or k8s"),
        ("spark://hub", "must be spark://HOST:PORT"),
        ("spark://127.0.0.1:9", "there is no Spark master at 'spark://127.0.0.1:9': Connection refused"),
    ],
)
def test_a_master_that_is_none_is_refused_before_anything_starts(master: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        require_master(master)


def test_java_that_is_missing_or_too_old_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(spark_session, "find_spec", lambda _name: None)
    with pytest.raises(QueryError, match="needs Java 17 or newer, and there is none: install a JRE"):
        java_home()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(QueryError, match=r"needs Java 17 or newer, and '.*java' is 8"):
        java_home()
    with pytest.raises(QueryError, match="needs pyspark: pip install 'hocket"):
        spark_session.SparkConnection("local[1]")


def test_errors_of_spark_are_told_in_one_line(tmp_path: Path) -> None:
    there = tmp_path / "t.parquet"
    said = (
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file://{}. File does not exist.\n at x"
    )
    gone = explained(RuntimeError(said.format(there)), "spark://hub:7077")
    assert gone == f"'{there}' is gone"
    there.write_bytes(b"")
    unseen = explained(RuntimeError(said.format(there)), "spark://hub:7077")
    assert unseen == f"the workers of 'spark://hub:7077' do not see '{there}'"
    lines = (
        "An error occurred while calling o1.x\n: org.x.Y: z\nCaused by: java.lang.ArithmeticException: overflow\n at q"
    )
    assert explained(RuntimeError(lines), "local") == "overflow"


def test_an_engine_that_is_not_known_is_refused() -> None:
    with pytest.raises(QueryError, match="engine 'flink' is not known; engines: duckdb, spark"):
        Query("SELECT 1", "tpch:0.01", engine="flink")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="engine 'spark' needs a master"):
        Query("SELECT 1", "tpch:0.01", engine="spark")
