"""Where the tables of a query are: a folder of Parquet or CSV files, a DuckDB file, or generated TPC-H data."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir

import duckdb

from hocket.runtimes.query.duckdb_data import NUMBERED_SCHEMA, NUMBERS, DuckdbData
from hocket.runtimes.query.duckdb_errors import explained
from hocket.runtimes.query.prepared_layout import read_layout
from hocket.runtimes.query.sql_text import literal, quoted
from hocket.runtimes.query.statement import QueryError

TPCH = "tpch:"
DATABASES = (".duckdb", ".ddb", ".db")


def open_data(
    source: str | Path,
    threads: int | None = None,
    memory: str = "",
    state: Path | None = None,
    *,
    may_write: bool = False,
) -> DuckdbData:
    """Open the tables there, read-only; the connection reads nothing else but the folder `state`.

    With `may_write` it may do both elsewhere, too. Raises QueryError.
    """
    connection = connected(threads, memory)
    try:
        data, folders = _opened(connection, str(source))
        if not data.schema:
            raise QueryError(f"data '{source}' has no tables: it must have .parquet or .csv files, or folders of them")
        if not may_write:
            lock(connection, [*folders, *([str(state)] if state is not None else [])])
        return data
    except duckdb.Error as error:
        connection.close()
        raise explained(f"data '{source}' cannot be read", error) from error
    except BaseException:
        connection.close()
        raise


def connected(threads: int | None = None, memory: str = "") -> duckdb.DuckDBPyConnection:
    """A database in memory. Raises QueryError."""
    # What memory does not hold is written there, and not to the folder that the user happens to be in.
    spilled = Path(gettempdir(), f"hocket-query-{os.getpid()}-{token_hex(4)}")
    settings: dict[str, str | bool | int | float | list[str]] = {
        "allow_unsigned_extensions": "true",
        "temp_directory": str(spilled),
    }
    if threads is not None:
        settings["threads"] = threads
    if memory:
        settings["memory_limit"] = memory
    try:
        return duckdb.connect(config=settings)
    except duckdb.Error as error:
        raise QueryError(f"DuckDB cannot be started: {' '.join(str(error).split())[:300]}") from error


def _opened(connection: duckdb.DuckDBPyConnection, source: str) -> tuple[DuckdbData, list[str]]:
    """The tables, and the folders that are read when they are queried."""
    if source.startswith(TPCH):
        generate_tpch(connection, source.removeprefix(TPCH))
        return DuckdbData(connection), []
    path = Path(source).expanduser()
    if not path.exists():
        raise QueryError(f"data '{source}': there is no such file or folder")
    if path.is_file() and path.suffix in DATABASES:
        connection.execute(f"ATTACH {literal(path)} AS data (READ_ONLY)")
        connection.execute("USE data")
        return DuckdbData(connection, [path], "data", read_layout(connection, path)), []
    files = tables_of(path)
    for table, parts in files.items():
        listed = ", ".join(map(literal, parts))
        if parts[0].suffix == ".parquet":
            _create_views(connection, table, listed)
        else:  # CSV has no number of rows to split by, and would be parsed in each batch.
            connection.execute(f"CREATE TABLE {quoted(table)} AS SELECT * FROM read_csv([{listed}])")
    folders = sorted({str(part.parent) for parts in files.values() for part in parts})
    return DuckdbData(connection, [part for parts in files.values() for part in parts]), folders


def _create_views(connection: duckdb.DuckDBPyConnection, table: str, files: str) -> None:
    number, file = NUMBERS
    read = f"read_parquet([{files}], {number} = true, filename = '{file}')"
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {NUMBERED_SCHEMA}")
    try:
        connection.execute(f"CREATE VIEW {NUMBERED_SCHEMA}.{quoted(table)} AS SELECT * FROM {read}")
    except duckdb.BinderException:  # The files have a column of that name: rows are told apart by what is in them.
        connection.execute(f"CREATE VIEW {quoted(table)} AS SELECT * FROM read_parquet([{files}])")
    else:
        connection.execute(f"CREATE VIEW {quoted(table)} AS SELECT * EXCLUDE ({number}, {file}) FROM {read}")


def tables_of(path: Path) -> dict[str, list[Path]]:
    """Table → its files: a file is a table, and so is a folder of files."""
    if path.is_file():
        return {path.stem: [path]}
    found: dict[str, list[Path]] = {}
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            for kind in (".parquet", ".csv"):
                if parts := sorted(entry.rglob(f"*{kind}")):
                    if entry.name in found:
                        raise QueryError(
                            f"data '{path}': table '{entry.name}' has .parquet and .csv files: use one kind"
                        )
                    found[entry.name] = parts
        elif entry.suffix in (".parquet", ".csv"):
            if entry.stem in found:
                raise QueryError(f"data '{path}' has table '{entry.stem}' twice")
            found[entry.stem] = [entry]
    return found


def generate_tpch(connection: duckdb.DuckDBPyConnection, scale: str) -> None:
    """Make the tables of TPC-H. Raises QueryError."""
    try:
        factor = float(scale)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1000:
        raise QueryError(f"data 'tpch:{scale}': the scale factor must be a number above 0, up to 1000")
    spec = find_spec("duckdb_extension_tpch")
    if spec is None or spec.origin is None:
        raise QueryError("data 'tpch:…' needs the TPC-H extension of DuckDB: pip install duckdb-extension-tpch")
    folder = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
    connection.execute(f"LOAD {literal(folder / 'tpch.duckdb_extension')}")
    connection.execute(f"CALL dbgen(sf = {factor!r})")


def lock(connection: duckdb.DuckDBPyConnection, folders: list[str]) -> None:
    """A query reads its data and nothing else, whatever functions DuckDB has.

    Neither setting can be taken back; threads and memory may change between batches.
    """
    connection.execute(f"SET allowed_directories = {literal([f'{Path(folder)}{os.sep}' for folder in folders])}")
    connection.execute("SET enable_external_access = false")
