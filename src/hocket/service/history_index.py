"""Some states between the cycles of a journal, and the times of all cycles, so that any is found without folding all.

A file beside the journal, made of it: if it is lost, damaged or of other code, it is made anew. It is divided into
segments. Each has the times of its cycles, how much each decision changed, the jobs that ended, and the state after its
last cycle.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zlib import compress, crc32, decompress
from zlib import error as zlib_error

import msgspec
from msgspec import Struct

from hocket.control import saved_state
from hocket.control.ports import Beginning
from hocket.service.kept_jobs import KeptJobs

_FORMAT = 1  # raise it when the meaning of a column changes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS form (value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS segment (
    last INTEGER PRIMARY KEY, first INTEGER NOT NULL, from_s REAL NOT NULL, until_s REAL NOT NULL,
    decisions INTEGER NOT NULL, crc INTEGER, times BLOB NOT NULL, changes BLOB NOT NULL, ended BLOB NOT NULL,
    state BLOB NOT NULL
);
"""
_HEADS = "first, last, from_s, until_s, decisions, crc"
_ENCODER = msgspec.msgpack.Encoder()
_BEGINNING = msgspec.msgpack.Decoder(Beginning)
Times = array  # type 'd': by cycle, in seconds
Changes = array  # type 'H': by cycle, how many changes its decision made; 0 if there was none, or it changed nothing
MOST_CHANGES = 65_535


class IndexTroubleError(Exception):
    """The index cannot be read or written; the message names its file."""


class Segment(Struct, frozen=True):
    """Cycles one after the other, both numbers included."""

    first: int
    last: int
    from_s: float
    until_s: float
    decisions: int  # with a change
    crc: int | None  # of the last cycle's row: an index is of one journal


class HistoryIndex:
    """A SQLite file, or memory. For one thread."""

    def __init__(self, path: Path | None) -> None:
        """Raises IndexTroubleError."""
        self._path = path
        try:
            self._db = self._opened()
            heads = self._db.execute(f"SELECT {_HEADS} FROM segment ORDER BY last").fetchall()
        except sqlite3.Error:  # It is damaged.
            self._remove()
            self._db, heads = self._again(), []
        self.segments = [Segment(*head) for head in heads]  # oldest first

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def add(self, segment: Segment, times: Times[float], changes: Changes[int], ended: bytes, state: Beginning) -> None:
        """Keep what follows the last segment. Raises IndexTroubleError."""
        values = (compress(times.tobytes(), 1), compress(changes.tobytes(), 1), ended, _ENCODER.encode(state))
        row = (segment.last, segment.first, segment.from_s, segment.until_s, segment.decisions, segment.crc, *values)
        try:
            self._db.execute(f"INSERT OR REPLACE INTO segment VALUES ({','.join('?' * len(row))})", row)
        except sqlite3.Error as error:
            raise self._trouble("written", error) from error
        self.segments.append(segment)

    def state(self, last: int) -> Beginning:
        """The state after the segment that ends with this cycle. Raises IndexTroubleError."""
        (value,) = self._row("state", last)
        try:
            return _BEGINNING.decode(value)
        except msgspec.MsgspecError as error:
            raise self._trouble("read", error) from error

    def columns(self, last: int) -> tuple[Times[float], Changes[int]]:
        """Times and changes of that segment. Raises IndexTroubleError."""
        times, changes = self._row("times, changes", last)
        found: tuple[array[float], array[int]] = array("d"), array("H")
        try:
            found[0].frombytes(decompress(times))
            found[1].frombytes(decompress(changes))
        except (ValueError, zlib_error) as error:
            raise self._trouble("read", error) from error
        return found

    def ended(self, until: int) -> Iterator[bytes]:
        """The jobs that ended in segments up to that cycle, in blocks, the newest first. Raises IndexTroubleError."""
        for segment in reversed(self.segments):
            if segment.last <= until:
                (block,) = self._row("ended", segment.last)
                if block:
                    yield block

    def forget(self, until: int) -> None:
        """Forget segments that end before this cycle: nothing is kept of them elsewhere. Raises IndexTroubleError."""
        if self.segments and self.segments[0].last < until:
            self._delete("WHERE last < ?", until)
            self.segments = [segment for segment in self.segments if segment.last >= until]

    def clear(self) -> None:
        """Keep nothing. Raises IndexTroubleError."""
        self._delete("")
        self.segments = []

    def _delete(self, which: str, *values: int) -> None:
        try:
            self._db.execute(f"DELETE FROM segment {which}", values)
        except sqlite3.Error as error:
            raise self._trouble("written", error) from error

    def _row(self, columns: str, last: int) -> tuple[bytes, ...]:
        try:
            row: tuple[bytes, ...] | None = self._db.execute(
                f"SELECT {columns} FROM segment WHERE last = ?", (last,)
            ).fetchone()
        except sqlite3.Error as error:
            raise self._trouble("read", error) from error
        if row is None:
            raise self._trouble("read", LookupError(f"there is no segment up to cycle {last}"))
        return row

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path or ":memory:", isolation_level=None)
        try:
            db.execute("PRAGMA auto_vacuum = FULL")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")  # What a power cut takes is folded from the journal again.
            db.executescript(_SCHEMA)
            if db.execute("SELECT value FROM form").fetchall() != [(_form(),)]:
                db.execute("DELETE FROM segment")
                db.execute("DELETE FROM form")
                db.execute("INSERT INTO form VALUES (?)", (_form(),))
        except BaseException:
            db.close()
            raise
        return db

    def _again(self) -> sqlite3.Connection:
        try:
            return self._opened()
        except sqlite3.Error as error:
            raise self._trouble("opened", error) from error

    def _remove(self) -> None:
        if self._path is not None:
            for part in (self._path, Path(f"{self._path}-wal"), Path(f"{self._path}-shm")):
                try:
                    part.unlink(missing_ok=True)
                except OSError as error:
                    raise self._trouble("opened", error) from error

    def _trouble(self, done: str, error: Exception) -> IndexTroubleError:
        return IndexTroubleError(f"the index of the history, '{self._path or 'in memory'}', cannot be {done}: {error}")


@cache
def _form() -> int:
    """A checksum that changes with the code that reads the states."""
    schema = msgspec.json.encode(msgspec.json.schema(KeptJobs), order="sorted")
    return crc32(schema, crc32(f"{_FORMAT} {sys.byteorder} {saved_state.form()}".encode()))
