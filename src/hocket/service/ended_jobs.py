"""Records of jobs in a table of their own, so that those that are over cost neither memory nor time at a start."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from zlib import compress, crc32, decompress
from zlib import error as zlib_error

import msgspec
from msgspec import Struct

from hocket import __version__
from hocket.control.ports import Cycle
from hocket.service.record import Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, is_over INTEGER NOT NULL, value BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS live ON record (n) WHERE NOT is_over;
CREATE TABLE IF NOT EXISTS mark (value BLOB NOT NULL);
"""
_PATIENCE_S = 5.0
_IDS = 500  # looked for at once; SQLite allows 999 values in a statement, or more

_ENCODER = msgspec.msgpack.Encoder()
_RECORD = msgspec.msgpack.Decoder(Record)
_COMPRESSED = b"x"  # what zlib's values begin with, and no map of MessagePack does


class Mark(Struct, frozen=True):
    """Up to which cycle the table is complete, and what was counted by then."""

    cycle: int  # its number
    check: int  # its checksum: a table is of one journal
    submitted: int
    over: dict[str, int]  # verdict → jobs
    queue_reason: str
    newest: dict[str, str] = {}  # `Names.newest`


_MARK = msgspec.msgpack.Decoder(Mark)


class EndedJobsError(Exception):
    """The table cannot be read or written."""


def checksum(cycle: Cycle) -> int:
    """The checksum of a cycle and of the code that writes records: records of another version are not read."""
    return crc32(_ENCODER.encode(cycle), _form())


@cache
def _form() -> int:
    """A checksum that changes with the version, and with every field of a record, however deep."""
    schema = msgspec.json.encode(msgspec.json.schema(Record), order="sorted")
    return crc32(schema, crc32(__version__.encode()))


class EndedJobs:
    """A SQLite file. Written by the controller's thread; read by any, each time over a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = self._opened()
        except (sqlite3.Error, OSError):  # It is damaged, and made of the journal: begin anew.
            for part in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                part.unlink(missing_ok=True)
            with _trouble(path, "opened"):
                self._db = self._opened()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    # -- for the controller's thread ----------------------------------------------------------------------------

    def put(self, records: Sequence[Record], mark: Mark) -> None:
        """Keep these as they are now, and say so; all of it or nothing."""
        with _trouble(self.path, "written"), self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)", _rows(records))
            db.execute("DELETE FROM mark")
            db.execute("INSERT INTO mark VALUES (?)", (_ENCODER.encode(mark),))

    def fill(self, records: Sequence[Record]) -> None:
        """Add jobs, before there is a mark: a table without one is made anew."""
        with _trouble(self.path, "written"), self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)", _rows(records))

    def clear(self) -> None:
        """Keep nothing."""
        with _trouble(self.path, "written"), self._transaction() as db:
            db.execute("DELETE FROM mark")
            db.execute("DELETE FROM record")

    def mark(self) -> Mark | None:
        """How far it is; None if it is empty, or other code has written it."""
        with suppress(sqlite3.Error, msgspec.MsgspecError):
            row = self._db.execute("SELECT value FROM mark").fetchone()
            return None if row is None else _MARK.decode(row[0])
        return None

    def find(self, job_id: str) -> Record | None:
        """The record of a job."""
        with _trouble(self.path, "read"):
            return _found(self._db, job_id)

    def among(self, ids: Sequence[str]) -> dict[str, Record]:
        """Id → record, of those of these jobs that are here."""
        found: dict[str, Record] = {}
        with _trouble(self.path, "read"):
            for first in range(0, len(ids), _IDS):
                some = ids[first : first + _IDS]
                query = f"SELECT id, value FROM record WHERE id IN ({','.join('?' * len(some))})"
                found |= {job_id: _decoded(value) for job_id, value in self._db.execute(query, some)}
        return found

    def live(self) -> list[Record]:
        """The jobs that had not ended, in the order of submission."""
        with _trouble(self.path, "read"):
            rows = self._db.execute("SELECT value FROM record WHERE NOT is_over ORDER BY n").fetchall()
            return [_decoded(value) for (value,) in rows]

    # -- for any thread -----------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Record | None:
        """The record of a job."""
        with _trouble(self.path, "read"), self._reading() as db:
            return _found(db, job_id)

    def over(self, owner: str, limit: int | None) -> list[Record]:
        """The last so many that are over, of one owner or of all."""
        query = "SELECT value FROM record WHERE is_over AND (? = '' OR owner = ?) ORDER BY n DESC LIMIT ?"
        with _trouble(self.path, "read"), self._reading() as db:
            rows = db.execute(query, (owner, owner, -1 if limit is None else limit)).fetchall()
        return [_decoded(value) for (value,) in rows]

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")  # What a power cut takes is folded from the journal again.
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        return db

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", timeout=_PATIENCE_S, uri=True)) as db:
            yield db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # What went wrong before is what counts.
                self._db.execute("ROLLBACK")
            raise


def _rows(records: Sequence[Record]) -> list[tuple[int, str, str, bool, bytes]]:
    return [(r.number, r.job.id, r.job.owner, r.ended_s is not None, _encoded(r)) for r in records]


def _encoded(record: Record) -> bytes:
    """A record as bytes, compressed if the job has ended: their number grows without limit."""
    value = _ENCODER.encode(record)
    return value if record.ended_s is None else compress(value, 1)


def _decoded(value: bytes) -> Record:
    return _RECORD.decode(value if value[:1] != _COMPRESSED else decompress(value))


def _found(db: sqlite3.Connection, job_id: str) -> Record | None:
    row = db.execute("SELECT value FROM record WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else _decoded(row[0])


@contextmanager
def _trouble(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, msgspec.MsgspecError, zlib_error) as error:
        raise EndedJobsError(f"catalogue '{path}' cannot be {done}: {error}") from error
