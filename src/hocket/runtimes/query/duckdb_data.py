"""Tables in DuckDB, and what is known of them."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from hocket.runtimes.query.batch_sql import UnitRows
from hocket.runtimes.query.blocks import ROWS
from hocket.runtimes.query.prepared_layout import (
    ENDS,
    LAYOUT_SCHEMA,
    UNIT,
    UNITS,
    LayoutKey,
    PreparedLayout,
    Stamp,
    file_stamp,
    part_name,
)
from hocket.runtimes.query.split_key import Split
from hocket.runtimes.query.sql_text import literal, quoted
from hocket.runtimes.query.statement import QueryError

_SAMPLE = 1_000_000  # rows that are looked at for the most frequent value
NUMBERED_SCHEMA = "hocket_files"  # has the tables of Parquet files again, with what tells their rows apart:
NUMBERS = ("file_row_number", "hocket_file")
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")


class DuckdbData:
    """The tables of a connection."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: list[Path] | None = None,
        database: str = "",
        layout: PreparedLayout | None = None,
    ) -> None:
        """`files` must not change while they are read; tables are those of `database`, or of the connection."""
        self.connection = connection
        self.seed = 0  # another one, another order in which the data are read; what was prepared has one order
        self.schema: dict[str, dict[str, str]] = {}
        self.layout = layout or PreparedLayout()
        self.files: dict[Path, Stamp | None] = {file: file_stamp(file) for file in files or ()}
        self._rows: dict[str, float] = dict(self.layout.rows)
        self._distinct: dict[tuple[str, str], float] = dict(self.layout.distinct)
        self._largest: dict[tuple[str, str], float] = dict(self.layout.largest_share)
        views = connection.execute("SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        self._views = {view.lower() for _schema, view in views}
        self._numbered = {view.lower() for schema, view in views if schema == NUMBERED_SCHEMA}
        columns = (
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
            f"{f'AND database_name = {literal(database)} ' if database else ''}AND schema_name = current_schema() "
            "ORDER BY table_name, column_index"
        )
        for table, column, kind in connection.execute(columns).fetchall():
            self.schema.setdefault(table, {})[column] = kind
        collated = "SELECT 1 FROM duckdb_tables() WHERE contains(sql, ' COLLATE ') LIMIT 1"  # Columns do not tell it.
        self._has_collations = connection.execute(collated).fetchone() is not None

    def rows(self, table: str) -> float:
        """How many rows it has."""
        if table not in self._rows:
            row = self.connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()
            self._rows[table] = float(row[0]) if row is not None else 0.0
        return self._rows[table]

    def distinct(self, table: str, column: str) -> float:
        """About how many values a column has."""
        if (table, column) not in self._distinct:
            count = f"SELECT approx_count_distinct({quoted(column)}) FROM {quoted(table)}"
            row = self.connection.execute(count).fetchone()
            self._distinct[table, column] = float(row[0]) if row is not None else 0.0
        return self._distinct[table, column]

    def largest_share(self, table: str, column: str) -> float:
        """The part of the rows that the most frequent value of a column has, NULL being one; of large tables, about."""
        if column == ROWS and (self.has_row_numbers(table) or ROWS in self.stored_keys(table)):
            return 0.0
        if (table, column) not in self._largest:
            rows = self.rows(table)
            sample = f" USING SAMPLE {100 * _SAMPLE / rows:.4f}% (system)" if rows > _SAMPLE else ""
            value = f"hash({self._hashed(table, ROWS)})" if column == ROWS else quoted(column)
            counts = f"SELECT count(*) AS n FROM (SELECT {value} AS v FROM {quoted(table)}{sample}) GROUP BY v"
            row = self.connection.execute(f"SELECT max(n) / sum(n) FROM ({counts})").fetchone()
            self._largest[table, column] = float(row[0]) if row is not None and row[0] is not None else 0.0
        return self._largest[table, column]

    def hash_kind(self, table: str, column: str) -> str:
        """Equal values of columns of one kind have equal hashes; 5 as an integer and as a float number have not.

        Nothing if equal values of the column itself may have other hashes, as "a" and "A" have.
        """
        kind = next((kind for name, kind in self.columns(table).items() if name.lower() == column.lower()), "")
        if self._has_collations and "VARCHAR" in kind:
            return ""
        return "BIGINT" if kind in _INTEGERS else kind

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table, with their types."""
        return next(columns for name, columns in self.schema.items() if name.lower() == table.lower())

    def stored_keys(self, table: str) -> tuple[str, ...]:
        """The columns by which copies of the table are laid out."""
        return () if self.seed else self.layout.columns_of(table)

    def unit_rows(self, table: str, column: str) -> UnitRows:
        """The rows of a table, with the hash class of a column."""
        if column in self.stored_keys(table):
            key = LayoutKey(table.lower(), column)
            return UnitRows(quoted(table), UNIT, {end: (LAYOUT_SCHEMA, part_name(key, end)) for end in ENDS})
        hashed = self.hash_rows(table, column)
        return hashed._replace(unit=unit_of_hash(hashed.unit, self.seed))

    def hash_rows(self, table: str, column: str) -> UnitRows:
        """The rows of a table, with the hash of a column in place of its class."""
        is_numbered = column == ROWS and table.lower() in self._numbered
        relation = f"{NUMBERED_SCHEMA}.{quoted(table)}" if is_numbered else quoted(table)
        return UnitRows(relation, f"hash({self._hashed(table, column)})")

    def how_read(self, split: Split) -> str:
        """Whether the batches of a query read their parts only, in words."""
        scanned = {use.table for use, column in split.columns.items() if column not in self.stored_keys(use.table)}
        if not scanned:
            return "prepared"
        if len(scanned) == len({use.table for use in split.columns}):
            return "unprepared: each batch scans the whole table"
        return f"prepared, but each batch scans all of {', '.join(sorted(scanned))}"

    def changed_source(self) -> str:
        """What prepared data are no longer the same as, in words; empty if nothing is known to have changed."""
        if not (changed := self.layout.changed_files()):
            return ""
        return f"prepared from '{self.layout.source}', where '{changed[0].name}' was changed since"

    def _hashed(self, table: str, column: str) -> str:
        if column != ROWS:
            # Of one width: hashes of a negative number in 4 and in 8 bytes differ.
            return f"{quoted(column)}::BIGINT" if self.hash_kind(table, column) == "BIGINT" else quoted(column)
        if not self.has_row_numbers(table):
            return ", ".join(map(quoted, self.columns(table)))
        return ", ".join(NUMBERS) if table.lower() in self._numbered else ROWS

    def has_row_numbers(self, table: str) -> bool:
        """Whether rows are told apart by numbers; otherwise by what is in them, and those that are alike are not."""
        if table.lower() in self._numbered:
            return True
        # A view has no numbers, and a column may have their name.
        return table.lower() not in self._views and ROWS not in map(str.lower, self.columns(table))

    def identity(self) -> str:
        """Tells these data from others: files by size and time, tables by columns and, without files, by rows."""
        files = sorted((file.name, *(stamp or ())) for file, stamp in self.files.items())
        rows = {table: self.rows(table) for table in self.schema if table.lower() not in self._views}
        return sha256(repr((files, sorted(self.schema.items()), sorted(rows.items()), self.seed)).encode()).hexdigest()

    def check_files(self) -> None:
        """Notice files that changed since they were opened. Raises QueryError."""
        for file, before in self.files.items():
            if file_stamp(file) != before:
                raise QueryError(f"file '{file}' was changed while the query read it: its batches do not fit together")

    def check_statement(self, statement: exp.Expr) -> None:
        """Nothing is computed otherwise."""

    def compute_once(self, name: str, sql: str, *, for_answers: bool) -> None:  # noqa: ARG002 - they read the same table
        """Compute a table that batches and answers read."""
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def add_batch(self, name: str, sql: str, *, is_first: bool) -> int:
        """Add the rows of a SELECT to a table, which the first one creates; gives how many."""
        added = self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}" if is_first else f"INSERT INTO {name} {sql}"
        ).fetchone()
        assert added is not None
        return int(added[0])

    def rows_of(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, in its order."""
        return self.connection.execute(sql).fetchall()

    def interrupt(self) -> None:
        """End what is under way, from another thread."""
        self.connection.interrupt()

    def close(self) -> None:
        """Close the data."""
        with suppress(duckdb.Error):
            self.connection.close()


def unit_of_hash(hashed: str, seed: int) -> str:
    """SQL of the hash class that a hash is in; another seed, another order."""
    # Hashed again: the hash of two columns, as a row's number and its file, deals out consecutive numbers in a rhythm.
    return f"(hash(({hashed} // 2)::BIGINT + {seed}) % {UNITS})::INTEGER"
