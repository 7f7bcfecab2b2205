"""Data in DuckDB: tables of a database, and what is known of them."""

from __future__ import annotations

from functools import cache

import duckdb

from hocket.runtimes.query.split_key import ROWS

UNITS = 512  # hash classes of a key; batches are whole ones


class DuckdbData:
    """The tables of a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        found = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
        self.schema: dict[str, dict[str, str]] = {}
        for table, column, kind in found:
            self.schema.setdefault(table, {})[column] = kind

    @cache  # noqa: B019 - as long as the data
    def rows(self, table: str) -> float:
        """How many rows it has."""
        row = self.connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        return float(row[0]) if row is not None else 0.0

    @cache  # noqa: B019
    def distinct(self, table: str, column: str) -> float:
        """About how many values a column has."""
        row = self.connection.execute(f'SELECT approx_count_distinct("{column}") FROM "{table}"').fetchone()
        return float(row[0]) if row is not None else 0.0

    def unit_of(self, table: str, column: str) -> str:
        """SQL of the hash class of a row."""
        return f'(hash("{table}".{"rowid" if column == ROWS else column}) % {UNITS})::INTEGER'
