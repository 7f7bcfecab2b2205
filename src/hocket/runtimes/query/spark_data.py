"""Tables that the workers of Spark read, and what is known of them.

A DuckDB connection of this process has the same tables without rows: it knows the types of every answer, and merges the
parts that Spark computes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from sqlglot import exp

from hocket.runtimes.query.batch_sql import UnitRows
from hocket.runtimes.query.blocks import ROWS
from hocket.runtimes.query.data_sources import TPCH, connected, generate_tpch, lock
from hocket.runtimes.query.duckdb_data import NUMBERED_SCHEMA, NUMBERS, DuckdbData
from hocket.runtimes.query.duckdb_errors import explained
from hocket.runtimes.query.prepared_layout import UNITS
from hocket.runtimes.query.spark_files import SparkTable, is_remote, local_tables, remote_tables, stamp_of
from hocket.runtimes.query.spark_session import SparkConnection
from hocket.runtimes.query.spark_sql import UNIT_OF_HASH, refuse_what_differs, spark_sql
from hocket.runtimes.query.split_key import Split
from hocket.runtimes.query.sql_text import literal, quoted
from hocket.runtimes.query.statement import QueryError, Schema

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

_SAMPLE = 1_000_000  # rows that are looked at for the most frequent value
_NUMBERS_OF_DATA = count()  # Data of one session have names of their own.
_ARRIVED, _ANSWER = "hocket_arrived", "hocket_answer"


class SparkData:
    """The tables of some files, and the session of Spark that reads them."""

    def __init__(
        self,
        spark: SparkConnection,
        connection: duckdb.DuckDBPyConnection,
        tables: Mapping[str, SparkTable],
        *,
        temporary: Path | None = None,
        owns_spark: bool = True,
    ) -> None:
        """Read the columns of all tables; the folder `temporary` is removed at the end. Raises QueryError."""
        self.connection, self._spark, self._temporary, self._owns_spark = connection, spark, temporary, owns_spark
        self._stamps = {file: stamp_of(spark, file) for table in tables.values() for file in table.files}
        self._number = next(_NUMBERS_OF_DATA)
        self._names: dict[tuple[str, str], str] = {}  # schema and table → what Spark calls it
        self._once: dict[str, DataFrame] = {}  # tables that were computed once, and are kept by the workers
        self._rows: dict[str, float] = {}
        self._distinct: dict[tuple[str, str], float] = {}
        self._largest: dict[tuple[str, str], float] = {}
        with spark.errors("Spark cannot be set up"):  # Both have the same days and hours of points in time.
            (zone,) = connection.execute("SELECT current_setting('TimeZone')").fetchone() or ("UTC",)
            spark.session.conf.set("spark.sql.session.timeZone", zone)
        connection.execute(f"CREATE SCHEMA {NUMBERED_SCHEMA}")
        connection.execute(f"CREATE MACRO {UNIT_OF_HASH}(hashed, seed) AS (hashed % {UNITS})::INTEGER")
        for name, table in tables.items():
            self._add(name, table)
        self._without_rows = DuckdbData(connection)
        self.seed = 0

    def _add(self, name: str, table: SparkTable) -> None:
        rows = table.read(self._spark)
        with self._spark.errors(f"table '{name}' cannot be read"):
            kinds = {**_kinds(self.connection, self._spark.arrow_schema(rows)), **table.kinds}
            self._spark.name(self._spark_name("", name), rows)
            if table.format == "parquet":
                number, file = NUMBERS
                numbered = rows.selectExpr("*", f"_metadata.row_index AS {number}", f"_metadata.file_path AS {file}")
                self._spark.name(self._spark_name(NUMBERED_SCHEMA, name), numbered)
                _create_view(self.connection, f"{NUMBERED_SCHEMA}.{quoted(name)}", {**kinds, **_NUMBER_KINDS})
        _create_view(self.connection, quoted(name), kinds)

    @property
    def schema(self) -> Schema:
        """The tables, with their columns and DuckDB's types of them."""
        return self._without_rows.schema

    # -- statistics ---------------------------------------------------------------------------------------------

    def rows(self, table: str) -> float:
        """How many rows it has."""
        if table not in self._rows:
            self._rows[table] = float(self._row(f"SELECT count(*) FROM {quoted(table)}")[0])
        return self._rows[table]

    def distinct(self, table: str, column: str) -> float:
        """About how many values a column has."""
        if (table, column) not in self._distinct:
            count = f"SELECT approx_count_distinct({quoted(column)}) FROM {quoted(table)}"
            self._distinct[table, column] = float(self._row(count)[0])
        return self._distinct[table, column]

    def largest_share(self, table: str, column: str) -> float:
        """The part of the rows that the most frequent value of a column has, NULL being one; of large tables, about."""
        if column == ROWS and self._without_rows.has_row_numbers(table):
            return 0.0
        if (table, column) not in self._largest:
            rows, name = self.rows(table), self._spark_name("", table)
            percent = 100 * _SAMPLE / rows if rows > _SAMPLE else 100
            sample = f"`{name}` TABLESAMPLE ({percent:.4f} PERCENT) REPEATABLE (0)" if percent < 100 else f"`{name}`"
            columns = self._without_rows.columns(table) if column == ROWS else [column]
            escaped = ", ".join("`{}`".format(one.replace("`", "``")) for one in columns)
            counts = f"SELECT count(*) AS n FROM {sample} GROUP BY {escaped}"
            largest, total = self._spark.row(f"SELECT max(n), sum(n) FROM ({counts})")
            self._largest[table, column] = largest / total if total else 0.0
        return self._largest[table, column]

    def hash_kind(self, table: str, column: str) -> str:
        """Equal values of columns of one kind have equal hashes."""
        return self._without_rows.hash_kind(table, column)

    def stored_keys(self, table: str) -> tuple[str, ...]:
        """Columns by whose hash the rows of the table are laid out."""
        return self._without_rows.stored_keys(table)

    # -- how they are read --------------------------------------------------------------------------------------

    def unit_rows(self, table: str, column: str) -> UnitRows:
        """The rows of a table, with the hash class of a column."""
        hashed = self._without_rows.hash_rows(table, column)
        return hashed._replace(unit=f"{UNIT_OF_HASH}({hashed.unit}, {self.seed})")

    def how_read(self, split: Split) -> str:
        """Whether the batches of a query read their parts only, in words."""
        return f"{self._without_rows.how_read(split)}; computed by Spark at {self._spark.master}"

    def changed_source(self) -> str:
        """What prepared data are no longer the same as, in words; empty if nothing is known to have changed."""
        return self._without_rows.changed_source()

    def identity(self) -> str:
        """Tells these data from others, and from the same data in DuckDB, whose hashes are others."""
        files = sorted((file, *(stamp or ())) for file, stamp in self._stamps.items())
        return sha256(repr(("spark", files, sorted(self.schema.items()), self.seed)).encode()).hexdigest()

    def check_files(self) -> None:
        """Notice files that changed since they were opened. Raises QueryError."""
        for file, before in self._stamps.items():
            if stamp_of(self._spark, file) != before:
                raise QueryError(f"file '{file}' was changed while the query read it: its batches do not fit together")

    # -- what is computed ---------------------------------------------------------------------------------------

    def check_statement(self, statement: exp.Expr) -> None:
        """Refuse what Spark may compute otherwise than DuckDB. Raises QueryError."""
        refuse_what_differs(statement)

    def compute_once(self, name: str, sql: str, *, for_answers: bool) -> None:
        """Compute a table that all batches read; if it is `for_answers`, the connection has it for these."""
        self._create(name, sql)
        with self._spark.errors("the query cannot be run"):
            self._forget(name)
            # What a lost worker had of it is computed again.
            self._once[name] = self._spark.session.sql(self._translated(sql)).persist()
            self._spark.name(self._spark_name("", name), self._once[name])
        if for_answers:
            self._insert(name, f"SELECT * FROM {name}")

    def add_batch(self, name: str, sql: str, *, is_first: bool) -> int:
        """Add the rows of a SELECT to a table of the connection, which the first one creates; gives how many."""
        if is_first:
            self._create(name, sql)
        return self._insert(name, sql)

    def rows_of(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, in its order."""
        self._create(_ANSWER, sql)
        self._insert(_ANSWER, sql)
        return self.connection.execute(f"FROM {_ANSWER}").fetchall()

    def _create(self, name: str, sql: str) -> None:
        """A table for the rows of a SELECT, with the types that they have in DuckDB."""
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM ({sql}) LIMIT 0")

    def _insert(self, name: str, sql: str) -> int:
        found = self._spark.arrow(self._translated(sql))
        self.connection.register(_ARRIVED, found.rename_columns([f"c{n}" for n in range(found.num_columns)]))
        try:
            self.connection.execute(f"INSERT INTO {name} SELECT * FROM {_ARRIVED}")
        finally:
            self.connection.unregister(_ARRIVED)
        return int(found.num_rows)

    def _row(self, sql: str) -> tuple[Any, ...]:
        return self._spark.row(self._translated(sql))

    def _translated(self, sql: str) -> str:
        return spark_sql(sql, self._spark_name)

    def _spark_name(self, schema: str, table: str) -> str:
        """The name of a table in Spark, which allows fewer names than DuckDB."""
        key = schema.lower(), table.lower()
        return self._names.setdefault(key, f"hocket_{self._number}_{len(self._names)}")

    def _forget(self, name: str) -> None:
        if (rows := self._once.pop(name, None)) is not None:
            rows.unpersist()

    def interrupt(self) -> None:
        """End what is under way, from another thread."""
        self._spark.interrupt()
        self.connection.interrupt()

    def close(self) -> None:
        """Close the data, and stop the session."""
        with suppress(duckdb.Error):
            self.connection.close()
        if self._owns_spark:
            self._spark.close()
        else:
            self._leave()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _leave(self) -> None:
        """A session that was handed in goes on without these tables."""
        with suppress(QueryError), self._spark.errors("tables cannot be removed"):
            for name in list(self._once):
                self._forget(name)
            for view in self._names.values():
                self._spark.session.catalog.dropTempView(view)
            self._names.clear()


def open_spark_data(
    source: str | Path,
    spark: str | SparkConnection,
    conf: Mapping[str, str] | None = None,
    threads: int | None = None,
    memory: str = "",
    state: Path | None = None,
) -> SparkData:
    """The tables there, read by the workers of a master or of a session; threads and memory are for merging here.

    What can be refused without Spark is refused before it is started, which takes a while. Raises QueryError.
    """
    text, temporary = str(source), None
    tables: dict[str, SparkTable] = {}
    connection = connected(threads, memory)
    started: SparkConnection | None = None
    try:
        if text.startswith(TPCH):
            temporary = Path(tempfile.mkdtemp(prefix="hocket-tpch-"))
            _write_tpch(text.removeprefix(TPCH), temporary)
        if not is_remote(text):
            tables = _found(source, local_tables(str(temporary or text)))
        if isinstance(spark, str):
            started = SparkConnection(spark, conf)
        session = started or spark
        assert isinstance(session, SparkConnection)
        tables = tables or _found(source, remote_tables(session, text))
        data = SparkData(session, connection, tables, temporary=temporary, owns_spark=started is not None)
        lock(connection, [str(state)] if state is not None else [])
        return data
    except BaseException as error:
        connection.close()
        if started is not None:
            started.close()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, duckdb.Error):
            raise explained(f"data '{source}' cannot be read", error) from error
        raise


def _found(source: str | Path, tables: dict[str, SparkTable]) -> dict[str, SparkTable]:
    if not tables:
        raise QueryError(f"data '{source}' has no tables: it must have .parquet or .csv files, or folders of them")
    return tables


def _write_tpch(scale: str, folder: Path) -> None:
    """Write TPC-H as Parquet, into a folder that workers on this machine see."""
    with closing(connected()) as db:
        generate_tpch(db, scale)
        for (table,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            db.execute(f"COPY {quoted(table)} TO {literal(f'{folder}/{table}.parquet')}")


_NUMBER_FIELDS = dict(zip(("row_index", "file_path"), NUMBERS, strict=True))
_NUMBER_KINDS = dict(zip(NUMBERS, ("BIGINT", "VARCHAR"), strict=True))


def _kinds(connection: duckdb.DuckDBPyConnection, columns: pyarrow.Schema) -> dict[str, str]:
    """Columns, with DuckDB's types of them."""
    connection.register(_ARRIVED, columns.empty_table())
    try:
        return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {_ARRIVED}").fetchall()}
    finally:
        connection.unregister(_ARRIVED)


def _create_view(connection: duckdb.DuckDBPyConnection, name: str, kinds: Mapping[str, str]) -> None:
    columns = ", ".join(f"NULL::{kind} AS {quoted(column)}" for column, kind in kinds.items())
    connection.execute(f"CREATE VIEW {name} AS SELECT {columns} WHERE false")
