"""What is in a prepared file: copies of tables in one part for each batch, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hocket.runtimes.query.sql_text import literal, row_values
from hocket.runtimes.query.statement import QueryError

if TYPE_CHECKING:
    import duckdb

FORMAT = 1
UNITS = 1024  # hash classes of a key; batches are whole ones
# Units after each batch. The first has one for each replicate, and is small: its answer comes soon, and few follow.
ENDS = (16, 64, 128, 256, 512, 1024)
assert ENDS[-1] == UNITS
UNIT = "hocket_unit"  # the column of the hash class
LAYOUT_SCHEMA = "hocket_layout"  # of the prepared file; queries cannot name its tables


class Stamp(NamedTuple):
    """What shows whether a file was changed: its size and time."""

    size_bytes: int
    changed_ns: int


class LayoutKey(NamedTuple):
    """What the rows of a copy are dealt out by: the units of a column, or of the rows themselves (`ROWS`)."""

    table: str  # in lower case, as the column
    column: str


class PreparedLayout(NamedTuple):
    """A prepared file."""

    copies: tuple[LayoutKey, ...] = ()
    rows: Mapping[str, float] = {}
    distinct: Mapping[tuple[str, str], float] = {}
    largest_share: Mapping[tuple[str, str], float] = {}
    source: str = ""
    stamps: Mapping[Path, Stamp] = {}  # of the source's files

    def columns_of(self, table: str) -> tuple[str, ...]:
        """The keys that a table is laid out by."""
        return tuple(key.column for key in self.copies if key.table == table.lower())

    def changed_files(self) -> list[Path]:
        """Files of the source that are not what they were; files that are gone are not counted: it may be elsewhere."""
        return [file for file, before in self.stamps.items() if file_stamp(file) not in (None, before)]


def part_name(key: LayoutKey, end: int) -> str:
    """The table of a batch, in `LAYOUT_SCHEMA`: the batch that ends before this unit."""
    return f"{key.table} by {key.column}, {ENDS.index(end) + 1} of {len(ENDS)}"


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
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.manifest (format INTEGER, ends INTEGER[], source VARCHAR)")
    db.execute(f"INSERT INTO {LAYOUT_SCHEMA}.manifest {row_values([(FORMAT, ENDS, source)])}")
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.sources (path VARCHAR, size_bytes BIGINT, changed_ns BIGINT)")
    if stamps:
        rows = [(file, *stamp) for file, stamp in stamps.items()]
        db.execute(f"INSERT INTO {LAYOUT_SCHEMA}.sources {row_values(rows)}")
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.copies (table_name VARCHAR, key VARCHAR)")
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.row_counts (table_name VARCHAR, row_count DOUBLE)")
    columns = "table_name VARCHAR, column_name VARCHAR, count DOUBLE, largest_share DOUBLE"
    db.execute(f"CREATE TABLE {LAYOUT_SCHEMA}.value_counts ({columns})")


def has_manifest(db: duckdb.DuckDBPyConnection) -> bool:
    """Whether the database in use was prepared."""
    known = "SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() AND table_name = 'manifest'"
    return db.execute(f"{known} AND schema_name = {literal(LAYOUT_SCHEMA)}").fetchone() is not None


def read_layout(db: duckdb.DuckDBPyConnection, path: Path) -> PreparedLayout | None:
    """The layout of the database in use; None if it was not prepared. Raises QueryError for an unknown format."""
    if not has_manifest(db):
        return None
    found = db.execute(f"SELECT format, ends, source FROM {LAYOUT_SCHEMA}.manifest").fetchone()
    if found is None or found[0] != FORMAT or found[1] != list(ENDS):
        has = "no format" if found is None else f"format {found[0]} with batches that end at {found[1]}"
        raise QueryError(
            f"data '{path}' has {has}, this version of Hocket reads format {FORMAT} with {list(ENDS)}: "
            "make it again with `hocket query prepare`"
        )
    copies = db.execute(f"SELECT table_name, key FROM {LAYOUT_SCHEMA}.copies ORDER BY rowid").fetchall()
    rows = db.execute(f"SELECT table_name, row_count FROM {LAYOUT_SCHEMA}.row_counts").fetchall()
    columns = "table_name, column_name, count, largest_share"
    counts = db.execute(f"SELECT {columns} FROM {LAYOUT_SCHEMA}.value_counts").fetchall()
    stamps = db.execute(f"SELECT path, size_bytes, changed_ns FROM {LAYOUT_SCHEMA}.sources").fetchall()
    return PreparedLayout(
        tuple(LayoutKey(table, key) for table, key in copies),
        dict(rows),
        {(table, column): count for table, column, count, _share in counts},
        {(table, column): share for table, column, _count, share in counts},
        found[2],
        {Path(name): Stamp(size, changed) for name, size, changed in stamps},
    )
