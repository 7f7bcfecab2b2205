"""Parquet and CSV files that the workers of Spark see, by path or by URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from hocket.runtimes.query.data_sources import DATABASES, tables_of
from hocket.runtimes.query.duckdb_errors import explained
from hocket.runtimes.query.prepared_layout import Stamp, file_stamp
from hocket.runtimes.query.sql_text import literal
from hocket.runtimes.query.statement import QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from hocket.runtimes.query.spark_session import SparkConnection

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_FORMATS = ("parquet", "csv")
_CSV_KINDS = {
    "BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "VARCHAR": "STRING", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP_NTZ",
    "BOOLEAN": "BOOLEAN",
}  # fmt: skip
_ISO = ("", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")  # Spark has wider types instead.


class SparkTable(NamedTuple):
    """Where a table is, and how it is read."""

    format: str  # one of `_FORMATS`
    files: tuple[str, ...]  # paths of this machine, or URLs
    folder: str = ""  # of a table of several files
    kinds: Mapping[str, str] = {}  # DuckDB's types of columns for which Spark has another one
    columns: str = ""  # with their types, in Spark's words; empty if Spark finds them
    options: Mapping[str, str] = {}  # of the reader

    def read(self, spark: SparkConnection) -> DataFrame:
        """Its rows. Raises QueryError."""
        options = {**self.options, **({"basePath": self.folder} if self.folder else {})}
        with spark.errors(f"'{self.folder or self.files[0]}' cannot be read"):
            reader = spark.session.read.format(self.format).options(**options)
            if self.columns:
                reader = reader.schema(self.columns)
            return reader.load(list(map(_not_globbed, self.files)))


def is_remote(source: str) -> bool:
    """Whether Spark must be asked for it."""
    return _URL.match(source) is not None and not source.startswith("file://")


def local_tables(source: str) -> dict[str, SparkTable]:
    """The tables of a folder or file of this machine; Spark's workers must see the same files. Raises QueryError."""
    path = Path(source.removeprefix("file://")).expanduser().absolute()
    if not path.exists():
        raise QueryError(f"data '{source}': there is no such file or folder")
    if path.is_file() and path.suffix in DATABASES:
        raise QueryError(
            f"data '{source}': Spark does not read DuckDB files: write its tables as Parquet "
            f"(duckdb {path.name} \"EXPORT DATABASE 'FOLDER' (FORMAT parquet)\") and give that folder"
        )
    found: dict[str, SparkTable] = {}
    for name, files in tables_of(path).items():
        folder = str(path / name) if path.is_dir() and files[0].parent != path else ""
        try:
            with closing(duckdb.connect()) as db:
                found[name] = (_parquet if files[0].suffix == ".parquet" else _csv)(db, files, folder)
        except duckdb.Error as error:
            raise explained(f"data '{files[0]}' cannot be read", error) from error
    return found


def _parquet(db: duckdb.DuckDBPyConnection, files: list[Path], folder: str) -> SparkTable:
    columns = db.execute(f"DESCRIBE SELECT * FROM read_parquet({literal(files)})").fetchall()
    unsigned = {column: kind for column, kind, *_ in columns if kind in _UNSIGNED}
    return SparkTable("parquet", tuple(map(str, files)), folder, unsigned)


def _csv(db: duckdb.DuckDBPyConnection, files: list[Path], folder: str) -> SparkTable:
    """DuckDB finds how it is written, so that both engines read the same."""
    names = list(map(str, files))
    columns = db.execute(f"DESCRIBE SELECT * FROM read_csv({literal(names)})").fetchall()
    found = db.execute(
        "SELECT Delimiter, Quote, Escape, HasHeader, SkipRows, DateFormat, TimestampFormat "
        f"FROM sniff_csv({literal(names[0])})"
    ).fetchone()
    assert found is not None
    separator, quote, escape, has_header, skipped, *formats = found
    for column, kind, *_ in columns:
        if kind not in _CSV_KINDS:
            raise QueryError(f"column '{column}' of '{names[0]}' is {kind}: Spark reads it from Parquet only")
    if skipped or any((written or "") not in _ISO for written in formats):
        what = f"{skipped} lines before its header" if skipped else f"times as {next(filter(None, formats))}"
        raise QueryError(f"'{names[0]}' has {what}: Spark reads it from Parquet only")
    listed = ", ".join(f"`{column.replace('`', '``')}` {_CSV_KINDS[kind]}" for column, kind, *_ in columns)
    options = {
        "sep": separator, "header": str(has_header).lower(), "mode": "FAILFAST", "nullValue": "",
        "enforceSchema": "true", **({"quote": quote} if quote else {}), **({"escape": escape} if escape else {}),
    }  # fmt: skip
    return SparkTable("csv", tuple(names), folder, {}, listed, options)


def remote_tables(spark: SparkConnection, source: str) -> dict[str, SparkTable]:
    """The tables at a URL that Hadoop's file systems know. Raises QueryError."""
    with spark.errors(f"data '{source}' cannot be read"):
        files, status = _file_system(spark, source)
        root = str(status.getPath().toString())
        listed = [root] if status.isFile() else list(_files_under(spark, files, root))
    found: dict[str, SparkTable] = {}
    for name, parts in tables_by_path(root, listed).items():
        kind = PurePosixPath(parts[0]).suffix.removeprefix(".")
        options = {"header": "true", "inferSchema": "true", "mode": "FAILFAST"} if kind == "csv" else {}
        folder = f"{root}/{name}" if parts[0].startswith(f"{root}/{name}/") else ""
        found[name] = SparkTable(kind, tuple(parts), folder, {}, "", options)
    return found


def tables_by_path(root: str, files: Iterable[str]) -> dict[str, list[str]]:
    """Table → its files: a file is a table, and so is a folder of files, of which Parquet comes first."""
    found: dict[str, dict[str, list[str]]] = {}
    for file in sorted(files):
        kind = PurePosixPath(file).suffix.removeprefix(".")
        parts = PurePosixPath(file.removeprefix(root).lstrip("/") or PurePosixPath(file).name).parts
        if kind in _FORMATS and not any(part.startswith(("_", ".")) for part in parts):
            name = parts[0] if len(parts) > 1 else PurePosixPath(parts[0]).stem
            found.setdefault(name, {}).setdefault(kind, []).append(file)
    return {name: kinds.get("parquet") or kinds["csv"] for name, kinds in found.items()}


def stamp_of(spark: SparkConnection, file: str) -> Stamp | None:
    """What shows whether a file was changed; None if it is not there."""
    if not is_remote(file):
        return file_stamp(Path(file.removeprefix("file://")))
    with spark.errors(f"file '{file}' cannot be read"):
        _files, status = _file_system(spark, file)
        return Stamp(status.getLen(), status.getModificationTime() * 1_000_000)


def _file_system(spark: SparkConnection, url: str) -> tuple[Any, Any]:
    """Hadoop's file system of a URL, and the status of what is there."""
    context = spark.session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(url)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    return files, files.getFileStatus(path)


def _files_under(spark: SparkConnection, files: Any, root: str) -> Iterator[str]:
    found = files.listFiles(spark.session.sparkContext._jvm.org.apache.hadoop.fs.Path(root), True)
    while found.hasNext():
        yield found.next().getPath().toString()


def _not_globbed(file: str) -> str:
    """Spark takes a path for a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", file if _URL.match(file) else f"file://{file}")
