"""Two journals: one in memory, one in SQLite that survives `kill -9`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hocket.control.ports import FORMAT, Cycle, Header


class JournalError(ValueError):
    """A journal that cannot be read or written; the message names the file."""


class MemoryJournal:
    """Keeps the cycles themselves; nothing is encoded."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.cycles: list[Cycle] = []
        self.append = self.cycles.append

    def __iter__(self) -> Iterator[Cycle]:
        return iter(self.cycles)

    def __len__(self) -> int:
        return len(self.cycles)


class SqliteJournal:
    """A row a cycle, in write-ahead mode; a cycle is on disk when `append` returns."""

    def __init__(self, path: Path | str, header: Header | None = None) -> None:
        """Open a journal, or begin one when a header is given."""
        self.path = Path(path)
        if header is None and not self.path.exists():
            raise JournalError(f"journal '{self.path}' does not exist")
        if header is not None and self.path.exists() and self.path.stat().st_size:
            raise JournalError(f"journal '{self.path}' exists already; a run begins a new one")
        # Not JSON, which has no word for the NaN that a diverging job reports.
        self._encode = msgspec.msgpack.Encoder(order="deterministic").encode
        self._decode = msgspec.msgpack.Decoder(Cycle).decode
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None)
            if header is not None:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("CREATE TABLE header (value BLOB NOT NULL)")
                self._db.execute("CREATE TABLE cycle (n INTEGER PRIMARY KEY, value BLOB NOT NULL)")
                self._db.execute("INSERT INTO header VALUES (?)", (msgspec.json.encode(header),))
                self.header = header
            else:
                (value,) = self._db.execute("SELECT value FROM header").fetchone() or (b"",)
                self.header = msgspec.json.decode(value, type=Header)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise JournalError(f"journal '{self.path}' cannot be opened: {error}") from error
        if self.header.format > FORMAT:
            raise JournalError(
                f"journal '{self.path}' has format {self.header.format}, this hocket reads up to {FORMAT}"
            )

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle; it is on disk when this returns."""
        self.extend([cycle])

    def extend(self, cycles: list[Cycle]) -> None:
        """Keep several cycles in one transaction."""
        rows = [(self._encode(c),) for c in cycles]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO cycle (value) VALUES (?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise JournalError(f"journal '{self.path}' cannot be written: {error}") from error

    def __iter__(self) -> Iterator[Cycle]:
        n = 0
        try:
            for n, value in self._db.execute("SELECT n, value FROM cycle ORDER BY n"):  # noqa: B007 - in the error
                yield self._decode(value)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise JournalError(f"journal '{self.path}', cycle {n}: {error}") from error

    def __len__(self) -> int:
        try:
            (count,) = self._db.execute("SELECT count(*) FROM cycle").fetchone()
        except sqlite3.Error as error:
            raise JournalError(f"journal '{self.path}' cannot be read: {error}") from error
        return int(count)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
