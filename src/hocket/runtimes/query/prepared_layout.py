"""What is in a prepared file: copies of tables whose rows lie in the order of their units, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hocket.runtimes.query.statement import QueryError

if TYPE_CHECKING:
    import duckdb

FORMAT = 1
UNITS = 512  # hash classes of a key; batches are whole ones
UNIT = "hocket_unit"  # the column of the hash class
LAYOUT_SCHEMA = "hocket_layout"  # of the prepared file; queries cannot name its tables


class Stamp(NamedTuple):
    """By which a file that was changed is told from what it was."""

    size_bytes: int
    changed_ns: int


class LayoutKey(NamedTuple):
    """What the rows of a copy are ordered by: the units of a column, or of the rows themselves (`ROWS`)."""

    table: str  # in lower case, as the column
    column: str


class PreparedLayout(NamedTuple):
    """A prepared file."""

    copies: Mapping[LayoutKey, str] = {}  # → its table in `LAYOUT_SCHEMA`
    rows: Mapping[str, float] = {}
    distinct: Mapping[tuple[str, str], float] = {}
    source: str = ""
    stamps: Mapping[Path, Stamp] = {}  # of the source's files

    def columns_of(self, table: str) -> tuple[str, ...]:
        """The keys that a table is laid out by."""
        return tuple(key.column for key in self.copies if key.table == table.lower())

    def copy_of(self, table: str, column: str) -> str:
        """The copy of a table that is laid out by a column."""
        return self.copies[LayoutKey(table.lower(), column.lower())]

    def changed_files(self) -> list[Path]:
        """Files of the source that are not what they were; files that are gone are not counted: it may be elsewhere."""
        return [file for file, before in self.stamps.items() if file_stamp(file) not in (None, before)]


def relation(copy: str) -> str:
    """SQL of a copy."""
    return f'{LAYOUT_SCHEMA}."{copy.replace(chr(34), chr(34) * 2)}"'


def file_stamp(file: Path) -> Stamp | None:
    """None if there is no such file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns)


def create_manifest(db: duckdb.DuckDBPyConnection, source: str, stamps: Mapping[Path, Stamp]) -> None:
    """Write where the data come from, into the database in use."""
    db.execute(f"CREATE SCHEMA {LAYOUT_SCHEMA}")
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.manifest (format INTEGER, units INTEGER, source VARCHAR)")
    db.execute(f"INSERT INTO {LAYOUT_SCHEMA}.manifest VALUES (?, ?, ?)", [FORMAT, UNITS, source])
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.sources (path VARCHAR, size_bytes BIGINT, changed_ns BIGINT)")
    for file, stamp in stamps.items():
        db.execute(f"INSERT INTO {LAYOUT_SCHEMA}.sources VALUES (?, ?, ?)", [str(file), *stamp])
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.copies (table_name VARCHAR, key VARCHAR, copy VARCHAR)")
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.row_counts (table_name VARCHAR, row_count DOUBLE)")
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.value_counts (table_name VARCHAR, column_name VARCHAR, count DOUBLE)")


def read_layout(db: duckdb.DuckDBPyConnection, path: Path) -> PreparedLayout | None:
    """That of the database in use; None if it was not prepared. Raises QueryError for a format that is not known."""
    known = "SELECT 1 FROM duckdb_tables() WHERE schema_name = ? AND table_name = 'manifest'"
    if db.execute(known, [LAYOUT_SCHEMA]).fetchone() is None:
        return None
    found = db.execute(f"SELECT format, units, source FROM {LAYOUT_SCHEMA}.manifest").fetchone()
    if found is None or found[:2] != (FORMAT, UNITS):
        has = "no format" if found is None else f"format {found[0]} with {found[1]} units"
        raise QueryError(
            f"data '{path}' has {has}, this version of Hocket reads format {FORMAT} with {UNITS} units: "
            "make it again with `hocket query prepare`"
        )
    copies = db.execute(f"SELECT table_name, key, copy FROM {LAYOUT_SCHEMA}.copies ORDER BY rowid").fetchall()
    rows = db.execute(f"SELECT table_name, row_count FROM {LAYOUT_SCHEMA}.row_counts").fetchall()
    distinct = db.execute(f"SELECT table_name, column_name, count FROM {LAYOUT_SCHEMA}.value_counts").fetchall()
    stamps = db.execute(f"SELECT path, size_bytes, changed_ns FROM {LAYOUT_SCHEMA}.sources").fetchall()
    return PreparedLayout(
        {LayoutKey(table, key): copy for table, key, copy in copies},
        dict(rows),
        {(table, column): count for table, column, count in distinct},
        found[2],
        {Path(name): Stamp(size, changed) for name, size, changed in stamps},
    )
