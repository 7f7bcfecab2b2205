"""Lays tables out by unit, in a DuckDB file, so that a batch reads its own part and nothing else.

A copy of a table is one table for each batch, sorted by unit and key. One table with a range of units for each batch
would be as quick to read, but DuckDB would guess how many rows a range has, and join in the wrong order. A table that
is split by several keys is copied for each of them.

Tables have their own names too, for queries that read them whole and for other programs that open the file. A small one
is there once more, as it is: a view over six parts takes DuckDB longer to plan, its scan is not told which keys the
other side of a join has, and aggregates over it take more memory. A large one is a view over the parts of its first
copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import duckdb

from hocket.runtimes.query.blocks import ROWS, NotSplit, blocks_of
from hocket.runtimes.query.data_sources import DATABASES
from hocket.runtimes.query.duckdb_data import DuckdbData
from hocket.runtimes.query.prepared_layout import (
    ENDS,
    LAYOUT_SCHEMA,
    UNIT,
    UNITS,
    LayoutKey,
    create_manifest,
    has_manifest,
    part_name,
)
from hocket.runtimes.query.split_key import LEAST_VALUES, find_split
from hocket.runtimes.query.sql_text import literal, quoted, row_values
from hocket.runtimes.query.statement import QueryError, read_statement

_SORTED_AT_ONCE = 8_000_000  # rows; more would be sorted on disk
_FEW_ROWS = 20_000  # a table that is read whole in no time is not laid out
_READ_WHOLE = 0.2  # of the rows of the largest table: tables of up to so many are kept as they are, too
_NEARLY_ALL = 0.75  # of the rows have a value of their own: counts of values are off by up to a fifth
_KEY_KINDS = ("BIGINT", "HUGEINT", "UBIGINT", "UUID")
# A query keeps whole blocks in memory. DuckDB's of 256 KiB each hold ends of several columns here, others that are not
# read among them: a quarter more memory, and no less time. In blocks of 32 KiB texts take three times the room.
_BLOCK_BYTES = 64 << 10
_ENDS_OF_KEYS = ("id", "key", "no", "code", "uuid")  # of texts that are keys


class LayoutStep(NamedTuple):
    """Part of the work."""

    table: str
    key: str  # a column, ROWS, or nothing: a copy as it is
    rows: float  # that are copied
    done: float  # of all rows of all copies, when it ends
    total: float


class WrittenCopy(NamedTuple):
    """A copy of a table that was written, for one key."""

    table: str
    key: str
    rows: int
    size_bytes: int


def keys_of_schema(data: DuckdbData) -> list[LayoutKey]:
    """The columns by which tables are joined, as their names tell: `o_orderkey` and `l_orderkey`, `id` is none.

    They have one kind and many values, and in one of the tables each value only once.
    """
    named: dict[tuple[str, str], list[LayoutKey]] = {}
    for table, columns in data.schema.items():
        for column in columns:
            kind, name = data.hash_kind(table, column), _common_name(column)
            if name and (kind in _KEY_KINDS or (kind == "VARCHAR" and name.endswith(_ENDS_OF_KEYS))):
                named.setdefault((name, kind), []).append(LayoutKey(table, column))
    found: list[LayoutKey] = []
    for keys in named.values():
        if len({key.table for key in keys}) < 2:
            continue
        counts = [(data.distinct(*key), data.rows(key.table)) for key in keys]
        if any(values >= _NEARLY_ALL * rows for values, rows in counts):
            found += [
                key for key, (values, rows) in zip(keys, counts, strict=True)
                if values >= LEAST_VALUES and rows >= _FEW_ROWS
            ]  # fmt: skip
    return found


def _common_name(column: str) -> str:
    """What the names of a key in several tables have in common: without the letters of the table (`l_`, `ps_`)."""
    prefix, underscore, name = column.lower().partition("_")
    name = name if underscore and len(prefix) <= 2 else column.lower()
    return "" if name == "id" else name


def keys_of_queries(data: DuckdbData, queries: Iterable[str]) -> list[LayoutKey]:
    """The columns by which these queries are split. Raises QueryError."""
    found: dict[LayoutKey, None] = {}
    for sql in queries:
        top = blocks_of(read_statement(sql, data.schema))
        try:
            split = find_split(top, data)
        except NotSplit:
            continue  # It is run at once, whatever the order of the rows.
        found |= {LayoutKey(_table(data, key.use.table), key.column): None for key in split.key}
    by_column = {key.table for key in found if key.column != ROWS}
    return [key for key in found if key.column != ROWS or key.table not in by_column]


def key_named(data: DuckdbData, text: str) -> LayoutKey:
    """The key of `TABLE.COLUMN`, or of the rows of `TABLE`. Raises QueryError."""
    name, _, column = text.partition(".")
    table = next((t for t in data.schema if t.lower() == name.lower()), None)
    if table is None:
        raise QueryError(f"key '{text}': there is no table '{name}'; tables: {', '.join(sorted(data.schema))}")
    columns = data.schema[table]
    found = next((c for c in columns if c.lower() == column.lower()), None)
    if column and found is None:
        raise QueryError(f"key '{text}': table '{table}' has no such column; columns: {', '.join(columns)}")
    return LayoutKey(table, found or ROWS)


def _table(data: DuckdbData, name: str) -> str:
    return next(table for table in data.schema if table.lower() == name.lower())


def prepare(data: DuckdbData, source: str, out: Path, keys: Iterable[LayoutKey]) -> Iterator[LayoutStep | WrittenCopy]:
    """Write the tables of `data` to the file `out`, which appears when all is written. Raises QueryError.

    `data` must have been opened with `may_write`. Tables of which no key is given are laid out by rows.
    """
    at = out.resolve()
    _require_writable(data, out, at)
    copies = _copies(data, keys)
    total = sum(data.rows(table) for table, _key in copies)
    part = at.with_name(f".{at.name}.part")
    db, done = data.connection, 0.0
    with _removed_unless_renamed(part):
        try:
            db.execute(f"SET temp_directory = {literal(f'{part}.tmp')}")
            db.execute(f"ATTACH {literal(part)} AS prepared (BLOCK_SIZE {_BLOCK_BYTES})")
            stamps = {file.resolve(): stamp for file, stamp in data.files.items() if stamp is not None}
            with _using_prepared(db):
                create_manifest(db, source, stamps)
            size = _size_bytes(part)
            for table, key in copies:
                for unit_count in _write(data, table, key):
                    rows = data.rows(table) * unit_count / UNITS
                    done += rows
                    yield LayoutStep(table, key, rows, done, total)
                db.execute("CHECKPOINT prepared")
                size, before = _size_bytes(part), size
                yield WrittenCopy(table, key, int(data.rows(table)), size - before)
            _count_values(data)
            db.execute("DETACH prepared")
            data.check_files()
        except (duckdb.Error, OSError) as error:
            raise QueryError(f"'{out}' cannot be written: {' '.join(str(error).split())[:300]}") from error
        os.replace(part, at)


def _require_writable(data: DuckdbData, out: Path, at: Path) -> None:
    """Only a file that was prepared before is overwritten. Raises QueryError."""
    if at.suffix not in DATABASES:
        raise QueryError(f"'{out}' must end with {', '.join(DATABASES[:-1])} or {DATABASES[-1]}")
    if any(at == file.resolve() for file in data.files):
        raise QueryError(f"'{out}' must be another file than the one that is read")
    if not at.parent.is_dir():
        raise QueryError(f"'{out}' must lie in a folder that exists")
    if not at.exists():
        return
    try:
        with closing(duckdb.connect(str(at), read_only=True)) as db:
            is_prepared = has_manifest(db)
    except duckdb.Error:
        is_prepared = False
    if not is_prepared:
        raise QueryError(f"'{out}' is there and was not made by `hocket query prepare`: it is not overwritten")


def _copies(data: DuckdbData, keys: Iterable[LayoutKey]) -> list[LayoutKey]:
    """Every table, for each of its keys; before these, small ones as they are."""
    by_table: dict[str, dict[str, None]] = {table: {} for table in data.schema}
    for key in keys:
        by_table[key.table][key.column] = None
    small = _READ_WHOLE * max(data.rows(table) for table in by_table)
    return [
        LayoutKey(table, column)
        for table, columns in by_table.items()
        for column in (
            *([""] if data.rows(table) <= max(small, _FEW_ROWS - 1) else []),
            *(columns or ([ROWS] if data.rows(table) >= _FEW_ROWS else [])),
        )
    ]


def _write(data: DuckdbData, table: str, key: str) -> Iterator[int]:
    """Write a copy, some units at a time; gives how many."""
    db, columns = data.connection, ", ".join(map(quoted, data.schema[table]))
    if not key:
        db.execute(f"CREATE TABLE prepared.main.{quoted(table)} AS SELECT {columns} FROM {quoted(table)}")
        yield UNITS
        return
    layout, rows = LayoutKey(table.lower(), key.lower()), data.unit_rows(table, key)
    order = UNIT if key == ROWS else f"{UNIT}, {quoted(key)}"
    read = f"SELECT {columns}, ({rows.unit})::SMALLINT AS {UNIT} FROM {rows.relation}"
    step = max(1, int(UNITS * _SORTED_AT_ONCE / max(data.rows(table), 1)))
    for start, end in pairwise((0, *ENDS)):
        target = f"prepared.{LAYOUT_SCHEMA}.{quoted(part_name(layout, end))}"
        db.execute(f"CREATE TABLE {target} AS {read} LIMIT 0")
        for first in range(start, end, step):
            last = min(first + step, end) - 1
            db.execute(f"INSERT INTO {target} {read} WHERE {rows.unit} BETWEEN {first} AND {last} ORDER BY {order}")
            yield last + 1 - first
    # Named with its database, a view would be lost when the file has another name. A table as it is stays.
    with _using_prepared(db):
        parts = (f"SELECT {columns} FROM {LAYOUT_SCHEMA}.{quoted(part_name(layout, end))}" for end in ENDS)
        db.execute(f"CREATE VIEW IF NOT EXISTS main.{quoted(table)} AS {' UNION ALL '.join(parts)}")
        db.execute(f"INSERT INTO {LAYOUT_SCHEMA}.copies {row_values([layout])}")


@contextmanager
def _using_prepared(db: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What is named without a database is in the new file."""
    (before,) = db.execute("SELECT current_database()").fetchone() or ("memory",)
    db.execute("USE prepared")
    yield
    db.execute(f"USE {quoted(before)}")


def _count_values(data: DuckdbData) -> None:
    """Keep how many rows and values there are: to find a key, nothing must be counted."""
    db = data.connection
    for table, columns in data.schema.items():
        counts = ", ".join(f"approx_count_distinct({quoted(column)})" for column in columns)
        row = db.execute(f"SELECT count(*), {counts} FROM prepared.main.{quoted(table)}").fetchone()
        assert row is not None
        db.execute(f"INSERT INTO prepared.{LAYOUT_SCHEMA}.row_counts {row_values([(table, row[0])])}")
        values = [
            (table, column.lower(), count, data.largest_share(table, column))
            for column, count in zip(columns, row[1:], strict=True)
        ]
        db.execute(f"INSERT INTO prepared.{LAYOUT_SCHEMA}.value_counts {row_values(values)}")


@contextmanager
def _removed_unless_renamed(part: Path) -> Iterator[None]:
    """What a run that failed or was killed has left is removed, before and after."""
    left = [part, part.with_name(f"{part.name}.wal")]
    folder = part.with_name(f"{part.name}.tmp")

    def remove() -> None:
        for file in left:
            file.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    remove()
    try:
        yield
    finally:
        remove()


def _size_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
