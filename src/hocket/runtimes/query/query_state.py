"""The state of a query after a batch, in a file: its partial aggregates or rows, and a ledger of the batches in them.

The file is a DuckDB database, which keeps every type as it is. A new one is written beside the last, synced, and
renamed over it. So a kill at any instruction leaves a whole state: that of the batch before, or that of this batch.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
from msgspec import Struct

from hocket.runtimes.query.sql_text import literal, row_values
from hocket.runtimes.query.statement import QueryError

FORMAT = "1"  # of the file; another one is not read
FILE = "query.state"
STATE = "hocket_state"  # the table of the parts that are merged so far
_SAVED = "hocket_saved"  # the file, while it is attached
_SMALL_ROWS, _SMALL_BLOCK = 20_000, 16_384  # Most states are small; blocks of the usual size would make them large.


class CountedBatch(Struct, frozen=True):
    """A batch that was computed and merged."""

    lo: int  # its first unit
    hi: int  # its last unit
    rows: int  # that it added to the state
    took_s: float


class LoadedState(Struct, frozen=True):
    """What was read from a file."""

    ledger: tuple[CountedBatch, ...]
    elapsed_s: float  # that the query had taken
    read_s: float
    bytes: int


class QueryStateFolder:
    """The folder in which one query keeps its state; another process that uses it is refused."""

    def __init__(self, folder: str | Path) -> None:
        """Make it, if need be. Raises QueryError."""
        self.path = Path(folder).expanduser().absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise QueryError(f"state '{folder}': the folder cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise QueryError(f"state '{folder}' is in use by another query") from error
        self._file, self._part = self.path / FILE, self.path / f"{FILE}.part"

    def close(self) -> None:
        """Close the folder, so that another query may use it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def load(self, db: duckdb.DuckDBPyConnection, identity: dict[str, str]) -> LoadedState | None:
        """Fill the state's table from the file; None if there is none. Raises QueryError if it is of another query."""
        from time import monotonic

        self._remove_part()
        if not self._file.exists():
            return None
        began_s = monotonic()
        try:
            with _attached(db, self._file, "(READ_ONLY)"):
                about = dict(db.execute(f"SELECT name, value FROM {_SAVED}.about").fetchall())
                self._refuse_another(about, identity)
                batches = db.execute(f"SELECT lo, hi, rows, took_s FROM {_SAVED}.ledger ORDER BY lo").fetchall()
                db.execute(f"CREATE OR REPLACE TEMP TABLE {STATE} AS FROM {_SAVED}.state")
            ledger = tuple(CountedBatch(*row) for row in batches)
            check_ledger(db, ledger)
        except (duckdb.Error, KeyError, ValueError) as error:
            if isinstance(error, QueryError):
                raise
            said = " ".join(str(error).split())[:200]
            raise QueryError(f"state '{self._file}' cannot be read: {said}; remove it to begin again") from error
        size = self._file.stat().st_size
        return LoadedState(ledger, float(about["elapsed_s"]), monotonic() - began_s, size)

    def save(
        self, db: duckdb.DuckDBPyConnection, identity: dict[str, str], ledger: Sequence[CountedBatch], elapsed_s: float
    ) -> int:
        """Write what the state's table holds; gives the bytes. Raises QueryError, and the file before is still there.

        The caller may be killed at any time, and so may the machine.
        """
        rows = sum(batch.rows for batch in ledger)
        block = f"(BLOCK_SIZE {_SMALL_BLOCK})" if rows < _SMALL_ROWS else ""
        try:
            self._remove_part()
            with _attached(db, self._part, block):
                db.execute(f"CREATE TABLE {_SAVED}.state AS FROM {STATE}")
                db.execute(f"CREATE TABLE {_SAVED}.ledger (lo INTEGER, hi INTEGER, rows BIGINT, took_s DOUBLE)")
                db.execute(f"CREATE TABLE {_SAVED}.about (name VARCHAR, value VARCHAR)")
                db.execute(f"INSERT INTO {_SAVED}.ledger {row_values(map(_row, ledger))}")
                about = {**identity, "format": FORMAT, "elapsed_s": repr(elapsed_s)}
                db.execute(f"INSERT INTO {_SAVED}.about {row_values(about.items())}")
                db.execute(f"CHECKPOINT {_SAVED}")
            _sync(self._part)
            size = self._part.stat().st_size
            os.replace(self._part, self._file)
            _sync(self.path)
        except (duckdb.Error, OSError) as error:
            with suppress(OSError):
                self._remove_part()
            before = "; the one before it is still there" if self._file.exists() else ""
            told = " ".join(str(error).split()).rpartition("Original error: ")[2][:300]
            said = (isinstance(error, OSError) and error.strerror) or told
            raise QueryError(f"the state cannot be kept in '{self.path}': {said}{before}") from error
        return size

    def remove(self) -> None:
        """Remove the state, which is not needed any more."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
            self._remove_part()

    def _remove_part(self) -> None:
        for path in (self._part, Path(f"{self._part}.wal")):
            path.unlink(missing_ok=True)

    def _refuse_another(self, about: dict[str, str], identity: dict[str, str]) -> None:
        if about["format"] != FORMAT:
            raise QueryError(f"state '{self._file}' has format {about['format']}, and must have {FORMAT}")
        if about["sql"] != identity["sql"]:
            raise QueryError(f"state '{self._file}' is of another query: {about['sql'][:100]}")
        if about["data"] != identity["data"]:
            raise QueryError(f"state '{self._file}' is of other data, or they have changed; remove it to begin again")
        if about["batches"] != identity["batches"]:
            raise QueryError(f"state '{self._file}' is of another version of Hocket; remove it to begin again")


def check_ledger(db: duckdb.DuckDBPyConnection, ledger: Sequence[CountedBatch], units: int | None = None) -> None:
    """Was every unit counted once, up to the last batch or to `units`, and has the state their rows? Or QueryError."""
    at = 0
    for batch in ledger:
        if batch.lo != at or batch.hi < batch.lo:
            what = "lost" if batch.lo > at else "counted twice"
            raise QueryError(f"the ledger of batches is wrong: units from {min(at, batch.lo)} on were {what}")
        at = batch.hi + 1
    if units is not None and at != units:
        raise QueryError(f"the ledger of batches is wrong: it ends at unit {at} of {units}")
    found = db.execute(f"SELECT count(*) FROM {STATE}").fetchone()
    rows = sum(batch.rows for batch in ledger)
    if found is None or found[0] != rows:
        raise QueryError(f"the state has {found and found[0]} rows, and the ledger of batches {rows}")


@contextmanager
def _attached(db: duckdb.DuckDBPyConnection, path: Path, options: str) -> Iterator[None]:
    db.execute(f"ATTACH {literal(path)} AS {_SAVED} {options}")
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):  # What it says is that of the first error, or less.
            db.execute(f"DETACH {_SAVED}")
        raise
    db.execute(f"DETACH {_SAVED}")


def _row(batch: CountedBatch) -> tuple[int, int, int, float]:
    return batch.lo, batch.hi, batch.rows, batch.took_s


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
