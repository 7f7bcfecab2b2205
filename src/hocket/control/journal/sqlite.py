"""A journal in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hocket.control.journal.lock import AlreadyLocked, LockFile, describe_holder, this_process
from hocket.control.journal.stored import (
    CHECKSUMS,
    PAGE,
    STATES,
    JournalError,
    JournalHeld,
    Row,
    StoredJournal,
    one_line,
)
from hocket.control.ports import Header

_SCHEMA = (
    "CREATE TABLE header (value BLOB NOT NULL)",
    "CREATE TABLE cycle (n INTEGER PRIMARY KEY, value BLOB NOT NULL, crc INTEGER)",
    "CREATE TABLE saved (n INTEGER PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE writer (epoch INTEGER NOT NULL, holder BLOB NOT NULL)",
    "INSERT INTO writer VALUES (0, '')",
)

_KEPT = "CREATE TABLE IF NOT EXISTS kept (kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, key))"
# Made when cycles are first removed: older journals have none.
_CUT_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS beginning (n INTEGER PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ended (n INTEGER PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)",
)
_LOG_BYTES = 16 << 20  # of the write-ahead log that stay on disk when it has become larger

_ANOTHER = "it is not a journal of hocket"
_NO_FILE_BESIDE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


class SqliteJournal(StoredJournal):
    """In write-ahead mode, synced with every commit: other processes may read it while it is written.

    A controller holds it by a lock file beside it, which names the holder. If the lock file is deleted, the epoch still
    protects the journal: opening it to append raises the epoch, and every commit checks that it is unchanged.
    """

    def __init__(
        self,
        path: Path | str,
        header: Header | None = None,
        *,
        goes_on: bool = False,
        epoch: int | None = None,
        patience_s: float = 5.0,
    ) -> None:
        """Open a journal to read; with a header, create one; to append, hold it, and create it if needed.

        With the `epoch` of the controller that holds it, to remove cycles for that. `patience_s` is how long to wait
        for another process that has locked the database.
        """
        super().__init__(header is not None or goes_on or epoch is not None)
        self.path = Path(path)
        self.name = str(path)
        self._patience_s = patience_s
        beside = self.path.resolve()
        self.lock_file = str(beside.with_name(f"{beside.name}.lock"))
        self._lock: LockFile | None = None
        self._db: sqlite3.Connection | None = None
        there = self.path.exists()
        if header is None and not there:
            raise JournalError(f"journal '{self.name}' does not exist")
        if header is not None and not goes_on and there and self.path.stat().st_size:
            raise JournalError(f"journal '{self.name}' exists already; a run needs a new one")
        try:
            if goes_on:
                self._hold()
            with self._trouble("opened"):
                self._db = self._connected()
                if epoch is not None:
                    self.header = self._read_header(self._db)
                    self._epoch, self._file = epoch, self.path.stat()
                    self._last = self._newest()
                elif self._writes:
                    self._begin_writing(self._db, header)
                else:
                    self._begin_reading(self._db)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._db is not None:
            self._db.close()
        if self._lock is not None:
            self._lock.release()

    def _hold(self) -> None:
        try:
            self._lock = LockFile(Path(self.lock_file))
        except AlreadyLocked as error:
            raise JournalHeld(f"journal '{self.name}' is held by {error}; one controller at a time") from error
        except OSError as error:
            raise JournalError(f"journal '{self.name}' cannot be opened: its lock: {one_line(error)}") from error

    def _connected(self) -> sqlite3.Connection:
        # Used by one thread at a time, but not always the same.
        return sqlite3.connect(self.path, timeout=self._patience_s, isolation_level=None, check_same_thread=False)

    def _begin_reading(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("PRAGMA query_only = OFF")
            self.header = self._read_header(db)
        except sqlite3.OperationalError as error:
            # In write-ahead mode readers create a file too. Where they have no permission to, no process is writing.
            if _primary(error) not in _NO_FILE_BESIDE or Path(f"{self.path}-wal").exists():
                raise
            db.close()
            alone = f"{self.path.resolve().as_uri()}?immutable=1"
            self._db = sqlite3.connect(alone, uri=True, check_same_thread=False)
            self.header = self._read_header(self._db)

    def _begin_writing(self, db: sqlite3.Connection, header: Header | None) -> None:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # It has an effect on a new file only, and only before the rest.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        with self._transaction(db):
            if header is not None and db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                for statement in _SCHEMA:
                    db.execute(statement)
                db.execute("INSERT INTO header VALUES (?)", (msgspec.json.encode(header),))
            self.header = self._read_header(db)
            db.execute(_KEPT)  # Journals of older versions have none.
            db.execute("UPDATE writer SET epoch = epoch + 1, holder = ?", (this_process(),))
            (self._epoch,) = db.execute("SELECT epoch FROM writer").fetchone()
        self._file = self.path.stat()
        self._last = self._newest()

    def _read_header(self, db: sqlite3.Connection) -> Header:
        if not db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'header'").fetchone()[0]:
            raise JournalError(f"journal '{self.name}' cannot be opened: {_ANOTHER}")
        (value,) = db.execute("SELECT value FROM header").fetchone() or (b"",)
        return self._decoded_header(value)

    def _commit(self, rows: list[Row]) -> None:
        with self._own_transaction() as db:
            db.executemany("INSERT INTO cycle VALUES (?, ?, ?)", rows)

    def _commit_state(self, row: Row) -> None:
        with self._own_transaction() as db:
            db.execute("INSERT OR REPLACE INTO saved VALUES (?, ?, ?)", row)
            db.execute("DELETE FROM saved WHERE n NOT IN (SELECT n FROM saved ORDER BY n DESC LIMIT ?)", (STATES,))

    def keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        """Keep values beside the cycles by their keys, and remove those that are None."""
        self._require_writable()
        # What was a job's secret is overwritten. For cycles that would be a waste.
        self._open().execute("PRAGMA secure_delete = ON")
        try:
            self._keep(kind, values)
        finally:
            self._open().execute("PRAGMA secure_delete = OFF")

    def _keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        with self._own_transaction() as db:
            db.executemany("DELETE FROM kept WHERE kind = ? AND key = ?", ((kind, key) for key in values))
            new = ((kind, key, value) for key, value in values.items() if value is not None)
            db.executemany("INSERT INTO kept VALUES (?, ?, ?)", new)

    def kept(self, kind: str, key: str | None = None) -> dict[str, bytes]:
        """The values of that kind by their keys, or the one with this key, if there is any."""
        select = "SELECT key, value FROM kept WHERE kind = ?1 AND (?2 IS NULL OR key = ?2)"
        with self._trouble("read"):
            return dict(self._open().execute(select, (kind, key)).fetchall())

    # -- removing old cycles ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """By which a process that removes cycles says for which controller it does that."""
        return self._epoch

    @property
    def size(self) -> int:
        """Bytes in use: the file may be larger."""
        with self._trouble("read"):
            pages, free, each = (self._pragma(name) for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * each

    def shrink(self, most: int) -> int:
        """Give up to so many bytes of the file back. One that an older version made stays as large as it is."""
        with self._trouble("written"):
            free, each = self._pragma("freelist_count"), self._pragma("page_size")
            if not free or self._pragma("auto_vacuum") == 0:
                self._open().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # Only now does the file shrink.
                return 0
            with self._own_transaction():
                pass  # Another process has not taken over; if it does from now on, this does no harm.
            # Not `execute`, which would stop after the first page.
            self._open().executescript(f"PRAGMA incremental_vacuum({max(1, most // each)})")
            return (free - self._pragma("freelist_count")) * each

    def rewrite(self) -> None:
        """Write the whole file anew, as small as it can be, so that `shrink` works from then on. Others wait."""
        self._require_writable()
        self._require_file()
        with self._trouble("written"):
            self._open().execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._open().execute("VACUUM")
            self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _pragma(self, name: str) -> int:
        return int(self._open().execute(f"PRAGMA {name}").fetchone()[0])

    def _commit_beginning(self, row: Row, blocks: list[Row], header: bytes) -> None:
        with self._own_transaction() as db:
            for statement in _CUT_SCHEMA:
                db.execute(statement)
            db.execute("DELETE FROM beginning")
            db.execute("INSERT INTO beginning VALUES (?, ?, ?)", row)
            db.executemany("INSERT INTO ended VALUES (?, ?, ?)", blocks)
            db.execute("UPDATE header SET value = ?", (header,))

    def _delete(self, last: int, most: int) -> int:
        with self._own_transaction() as db:
            (first,) = db.execute("SELECT min(n) FROM cycle").fetchone()
            if first is None or first > last:
                return 0
            db.execute("DELETE FROM cycle WHERE n <= ?", (min(last, first + most - 1),))
            return int(db.execute("SELECT changes()").fetchone()[0])

    def _beginning_row(self) -> Row | None:
        with self._trouble("read"):
            db = self._open()
            if not self._has("beginning"):
                return None
            row: Row | None = db.execute("SELECT n, value, crc FROM beginning").fetchone()
            return row

    def _ended_rows(self) -> Iterator[Row]:
        with self._trouble("read"):
            if self._has("ended"):
                yield from self._open().execute("SELECT n, value, crc FROM ended ORDER BY n")

    def _ended_blocks(self) -> int:
        with self._trouble("read"):
            return (self._open().execute("SELECT max(n) FROM ended").fetchone()[0] or 0) if self._has("ended") else 0

    def _has(self, table: str) -> bool:
        found = self._open().execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return bool(found[0])

    @contextmanager
    def _own_transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed only if no other process has taken the journal over."""
        self._require_file()
        with self._trouble("written"), self._transaction(self._open()) as db:
            epoch, kept = db.execute("SELECT epoch, holder FROM writer").fetchone() or (0, b"")
            if epoch != self._epoch:
                raise self._lose(f"it was taken over by {describe_holder(kept)}")
            yield db

    def _require_file(self) -> None:
        """Raise if the file was removed or replaced: SQLite would keep writing to the old one."""
        try:
            there = self.path.stat()
        except OSError as error:
            raise self._lose(f"its file is gone: {one_line(error)}") from error
        if (there.st_ino, there.st_dev) != (self._file.st_ino, self._file.st_dev):
            raise self._lose("another file is in its place")

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                with suppress(sqlite3.Error):  # Keep the first error.
                    db.execute("ROLLBACK")
            raise

    def _page(self, first: int) -> list[Row]:
        crc = "crc" if self.header.format >= CHECKSUMS else "NULL"
        with self._trouble("read"):
            return (
                self._open()
                .execute(f"SELECT n, value, {crc} FROM cycle WHERE n >= ? ORDER BY n LIMIT ?", (first, PAGE))
                .fetchall()
            )

    def _newest(self) -> int:
        with self._trouble("read"):
            (number,) = self._open().execute("SELECT max(n) FROM cycle").fetchone()
        return int(number or 0)

    def _states(self) -> list[Row]:
        with suppress(sqlite3.Error):
            return self._open().execute("SELECT n, value, crc FROM saved ORDER BY n DESC").fetchall()
        return []

    def _open(self) -> sqlite3.Connection:
        assert self._db is not None
        return self._db

    @contextmanager
    def _trouble(self, done: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            why = one_line(error)
            if self.path.is_dir():
                why = "it is a folder, not a file"
            elif _primary(error) == sqlite3.SQLITE_NOTADB:
                why = _ANOTHER
            if _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                why += f" by another process, for more than {self._patience_s:g} s"
            raise JournalError(f"journal '{self.name}' cannot be {done}: {why}") from error


def _primary(error: sqlite3.Error) -> int:
    """SQLite's error code, without the details in its upper bits."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
