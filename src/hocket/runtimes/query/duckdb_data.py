"""Tables in DuckDB, and what is known of them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import duckdb

from hocket.runtimes.query.split_key import ROWS
from hocket.runtimes.query.statement import QueryError

UNITS = 512  # hash classes of a key; batches are whole ones
_HIDDEN = ("file_row_number", "filename")  # of Parquet files, by which their rows are told apart


class DuckdbData:
    """The tables of a connection."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, files: list[Path] | None = None, database: str = ""
    ) -> None:
        """`files` must not change while they are read; tables are those of `database`, or of the connection."""
        self.connection = connection
        self.seed = 0  # another one, another order in which the data are read
        self.schema: dict[str, dict[str, str]] = {}
        self._views: set[str] = set()
        self._rows: dict[str, float] = {}
        self._distinct: dict[tuple[str, str], float] = {}
        self._files = {file: _stamp(file) for file in files or ()}
        views = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
        self._views = {name for (name,) in connection.execute(views).fetchall()}
        columns = (
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
            "AND (database_name = ? OR ? = '') ORDER BY table_name, column_index"
        )
        for table, column, kind in connection.execute(columns, [database, database]).fetchall():
            if table not in self._views or column not in _HIDDEN:
                self.schema.setdefault(table, {})[column] = kind

    def rows(self, table: str) -> float:
        """How many rows it has."""
        if table not in self._rows:
            row = self.connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
            self._rows[table] = float(row[0]) if row is not None else 0.0
        return self._rows[table]

    def distinct(self, table: str, column: str) -> float:
        """About how many values a column has."""
        if (table, column) not in self._distinct:
            row = self.connection.execute(f'SELECT approx_count_distinct("{column}") FROM "{table}"').fetchone()
            self._distinct[table, column] = float(row[0]) if row is not None else 0.0
        return self._distinct[table, column]

    def unit_of(self, table: str, column: str) -> str:
        """SQL of the hash class of a row."""
        rows = "file_row_number, filename" if table in self._views else "rowid"
        unit = f"hash({rows if column == ROWS else column})"
        if self.seed:  # Mixed in before a hash: as a second argument it would only give the classes other numbers.
            unit = f"hash(({unit} // 2)::BIGINT + {self.seed})"
        return f"({unit} % {UNITS})::INTEGER"

    def identity(self) -> str:
        """Tells these data from others: files by size and time, tables by columns and, without files, by rows."""
        files = sorted((file.name, *(stamp or ())) for file, stamp in self._files.items())
        rows = {table: self.rows(table) for table in self.schema if table not in self._views}
        return sha256(repr((files, sorted(self.schema.items()), sorted(rows.items()), self.seed)).encode()).hexdigest()

    def check_files(self) -> None:
        """Notice files that changed since they were opened. Raises QueryError."""
        for file, before in self._files.items():
            if _stamp(file) != before:
                raise QueryError(f"file '{file}' was changed while the query read it: its batches do not fit together")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
