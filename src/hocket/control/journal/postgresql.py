"""A journal in PostgreSQL, for controllers and readers on several machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from time import monotonic, sleep
from typing import Any, TypeVar

import msgspec
import psycopg

from hocket.control.journal.lock import close_in_children, describe_holder, this_process
from hocket.control.journal.postgresql_presence import HolderBeats, Presence
from hocket.control.journal.postgresql_session import (
    CREATE_LOCK,
    Connection,
    connect,
    may_pass,
    name_of,
    one,
    read_url,
    try_lock,
)
from hocket.control.journal.stored import (
    PAGE,
    STATES,
    JournalAway,
    JournalError,
    JournalHeld,
    JournalLost,
    Row,
    StoredJournal,
    one_line,
)
from hocket.control.ports import Header

_SCHEMA = """
CREATE TABLE hocket_header (value bytea NOT NULL);
CREATE TABLE hocket_cycle (n bigint PRIMARY KEY, value bytea NOT NULL, crc bigint);
CREATE TABLE hocket_saved (n bigint PRIMARY KEY, value bytea NOT NULL, crc bigint NOT NULL);
CREATE TABLE hocket_writer (epoch bigint NOT NULL, holder bytea NOT NULL);
INSERT INTO hocket_writer VALUES (0, '');
"""

# Each is one statement and so one transaction: it has an effect only while the epoch is ours, and another process that
# wants to raise the epoch must wait until it is committed.
_MINE = "WITH mine AS (SELECT epoch FROM hocket_writer WHERE epoch = %(epoch)s FOR SHARE)"
_APPEND = f"""{_MINE}
INSERT INTO hocket_cycle (n, value, crc) SELECT n, value, crc
FROM mine, unnest(%(numbers)b::bigint[], %(values)b::bytea[], %(checks)b::bigint[]) AS new (n, value, crc)
"""
_SAVE = f"""{_MINE}, gone AS (
    DELETE FROM hocket_saved WHERE EXISTS (SELECT FROM mine) AND n <> %(number)s AND n NOT IN (
        SELECT n FROM hocket_saved WHERE n <> %(number)s ORDER BY n DESC LIMIT %(others)s))
INSERT INTO hocket_saved (n, value, crc) SELECT %(number)s, %(value)b, %(check)s FROM mine
ON CONFLICT (n) DO UPDATE SET value = excluded.value, crc = excluded.crc
"""

# Journals of older versions have no such table.
_KEPT = """
CREATE TABLE hocket_kept (kind text, key text, value bytea NOT NULL, PRIMARY KEY (kind, key))
"""
_KEEP = f"""{_MINE}, gone AS (
    DELETE FROM hocket_kept WHERE EXISTS (SELECT FROM mine) AND kind = %(kind)s AND key = ANY(%(removed)s)),
new AS (
    INSERT INTO hocket_kept (kind, key, value) SELECT %(kind)s, key, value
    FROM mine, unnest(%(keys)s::text[], %(values)b::bytea[]) AS given (key, value)
    ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value)
SELECT FROM mine
"""

# Made when cycles are first removed: older journals have none.
_CUT_SCHEMA = """
CREATE TABLE IF NOT EXISTS hocket_beginning (n bigint PRIMARY KEY, value bytea NOT NULL, crc bigint NOT NULL);
CREATE TABLE IF NOT EXISTS hocket_ended (n bigint PRIMARY KEY, value bytea NOT NULL, crc bigint NOT NULL);
"""
_BEGIN = f"""{_MINE}, gone AS (DELETE FROM hocket_beginning WHERE EXISTS (SELECT FROM mine) AND n <> %(number)s),
jobs AS (INSERT INTO hocket_ended (n, value, crc) SELECT n, value, crc
    FROM mine, unnest(%(numbers)b::bigint[], %(values)b::bytea[], %(checks)b::bigint[]) AS new (n, value, crc)),
head AS (UPDATE hocket_header SET value = %(header)b WHERE EXISTS (SELECT FROM mine))
INSERT INTO hocket_beginning (n, value, crc) SELECT %(number)s, %(value)b, %(check)s FROM mine
"""
_REMOVE = f"""{_MINE} DELETE FROM hocket_cycle WHERE EXISTS (SELECT FROM mine) AND n <= %(last)s AND n <= (
    SELECT min(n) FROM hocket_cycle) + %(most)s - 1
"""
_TABLES = ("header", "cycle", "saved", "writer", "beginning", "ended")
_SIZE = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0) FROM unnest(%s::text[]) AS of (name)"

_RETRY_S = 0.1
_LEAVING_S = 2.0  # how long a server may take to notice that a session is over, and release its lock

T = TypeVar("T")


class PostgresqlJournal(StoredJournal):
    """Held by an advisory lock of the session that appends: an answered commit was made under the lock.

    When that session is lost, a new one takes the lock again, checks whether the last commit took place, and continues
    with the same epoch. If another controller came in between, the epoch has changed, and nothing is appended any more.
    """

    def __init__(
        self,
        url: str,
        header: Header | None = None,
        *,
        goes_on: bool = False,
        epoch: int | None = None,
        patience_s: float = 5.0,
    ) -> None:
        """Open a journal to read; with a header, create one; to append, hold it, and create it if needed.

        With the `epoch` of the controller that holds it, to remove cycles for that. `patience_s` is how long to wait
        for a server that does not answer, or for a locked table.
        """
        super().__init__(header is not None or goes_on or epoch is not None)
        self._is_holder = epoch is None  # if it writes at all
        self._patience_s = patience_s
        self._target = read_url(url)
        self.name = name_of(self._target)
        self._epoch: int | None = epoch  # none yet, for a holder
        self._db: Connection | None = None
        self._beats: HolderBeats | None = None  # of a holder
        try:
            self._db = self._connected()
            if header is not None:
                self._begin(self._db, header, goes_on)
            self.header = self._read_header(self._db)
            if not self._is_holder:
                self._last = self._newest()
            elif self._writes:
                self._hold(self._db)
                self._epoch = self._raise_epoch(self._db)
                if one(self._db, "SELECT to_regclass('hocket_kept') IS NULL") == (True,):
                    self._db.execute(_KEPT)
                self.others = self._beats = HolderBeats(Presence(self._connected, self._epoch), self._lose_to)
                self._last = self._newest()
            close_in_children(self)
        except psycopg.Error as error:
            self.close()
            kind = JournalAway if may_pass(error) else JournalError
            raise kind(f"journal '{self.name}' cannot be opened: {one_line(error)}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the session, which releases the lock."""
        if self._beats is not None:
            self._beats.end()
        if self._db is not None:
            self._db.close()

    def leave(self) -> None:
        """In a forked child: drop the session without sending anything to the server."""
        if self._db is not None and not self._db.closed:
            os.close(self._db.fileno())

    # -- the session ----------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        return connect(self._target, self._patience_s, reads=not self._writes)

    def _regained(self) -> Connection:
        """A new session in place of a lost one, if no other controller has taken the journal over."""
        db = self._connected()
        try:
            if self._epoch is not None:
                is_held = not self._is_holder or try_lock(db)
                epoch, kept = one(db, "SELECT epoch, holder FROM hocket_writer")
                if epoch != self._epoch:
                    raise self._lose_to(kept)
                if not is_held:
                    raise psycopg.OperationalError("the server still keeps the lock for the session that was lost")
        except BaseException:
            db.close()
            raise
        return db

    def _hold(self, db: Connection) -> None:
        until_s = monotonic() + _LEAVING_S
        while not try_lock(db):
            if monotonic() > until_s:
                (kept,) = one(db, "SELECT holder FROM hocket_writer")
                raise JournalHeld(f"journal '{self.name}' is held by {describe_holder(kept)}; one controller at a time")
            sleep(_RETRY_S)

    def _raise_epoch(self, db: Connection) -> int:
        (epoch,) = one(db, "UPDATE hocket_writer SET epoch = epoch + 1, holder = %b RETURNING epoch", this_process())
        return int(epoch)

    def _begin(self, db: Connection, header: Header, goes_on: bool) -> None:
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))  # Two processes may create it at once.
            if one(db, "SELECT to_regclass('hocket_cycle') IS NOT NULL") == (True,):
                if not goes_on:
                    raise JournalError(f"journal '{self.name}' exists already; a run needs a new one")
                return
            db.execute(_SCHEMA)
            db.execute("INSERT INTO hocket_header VALUES (%b)", (msgspec.json.encode(header),))

    def _read_header(self, db: Connection) -> Header:
        if one(db, "SELECT to_regclass('hocket_header') IS NOT NULL") == (False,):
            raise JournalError(f"journal '{self.name}' does not exist")
        row = db.execute("SELECT value FROM hocket_header").fetchone()
        return self._decoded_header(row[0] if row is not None else b"")

    # -- rows -----------------------------------------------------------------------------------------------

    def _commit(self, rows: list[Row]) -> None:
        numbers, values, checks = (list(column) for column in zip(*rows, strict=True))
        tried = False

        def insert(db: Connection) -> None:
            nonlocal tried
            if tried and self._are_there(db, rows):
                return  # The answer was lost, not the commit.
            tried = True
            given = {"epoch": self._epoch, "numbers": numbers, "values": values, "checks": checks}
            if db.execute(_APPEND, given).rowcount < len(rows):
                raise self._lose_to(one(db, "SELECT holder FROM hocket_writer")[0])

        self._done("written", insert)

    def _are_there(self, db: Connection, rows: list[Row]) -> bool:
        # The old session has ended, since we have its lock: it will commit nothing more.
        found = db.execute("SELECT n, crc FROM hocket_cycle WHERE n >= %s ORDER BY n", (rows[0][0],)).fetchall()
        if found and found != [(number, check) for number, _value, check in rows]:
            raise self._lose(f"cycle {rows[0][0]} was written by another process")
        return bool(found)

    def _commit_state(self, row: Row) -> None:
        number, value, check = row
        given = {"epoch": self._epoch, "number": number, "value": value, "check": check, "others": STATES - 1}

        def insert(db: Connection) -> None:
            if not db.execute(_SAVE, given).rowcount:
                raise self._lose_to(one(db, "SELECT holder FROM hocket_writer")[0])

        self._done("written", insert)

    def keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        """Keep values beside the cycles by their keys, and remove those that are None."""
        self._require_writable()
        new = {key: value for key, value in values.items() if value is not None}
        removed = [key for key in values if key not in new]
        given = {"epoch": self._epoch, "kind": kind, "removed": removed, "keys": [*new], "values": [*new.values()]}

        def change(db: Connection) -> None:
            if not db.execute(_KEEP, given).rowcount:
                raise self._lose_to(one(db, "SELECT holder FROM hocket_writer")[0])

        self._done("written", change)

    def kept(self, kind: str, key: str | None = None) -> dict[str, bytes]:
        """The values of that kind by their keys, or the one with this key, if there is any."""
        select = "SELECT key, value FROM hocket_kept WHERE kind = %s"
        found = self._read(select, kind) if key is None else self._read(f"{select} AND key = %s", kind, key)
        return dict(found)

    def _lose_to(self, holder: bytes) -> JournalLost:
        return self._lose(f"it was taken over by {describe_holder(holder)}")

    # -- removing old cycles ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """By which a process that removes cycles says for which controller it does that."""
        assert self._epoch is not None
        return self._epoch

    @property
    def size(self) -> int:
        """Bytes of its tables; the server gives the room of removed rows to new ones."""
        ((found,),) = self._read(_SIZE, [f"hocket_{table}" for table in _TABLES])
        return int(found)

    def shrink(self, most: int) -> int:  # noqa: ARG002 - the server does it
        """Nothing: the server uses the room again (autovacuum)."""
        return 0

    def _commit_beginning(self, row: Row, blocks: list[Row], header: bytes) -> None:
        number, value, check = row
        numbers, values, checks = (list(column) for column in zip(*blocks, strict=True)) if blocks else ([], [], [])
        given = {
            "epoch": self._epoch, "number": number, "value": value, "check": check, "header": header,
            "numbers": numbers, "values": values, "checks": checks,
        }  # fmt: skip
        tried = False

        def begin(db: Connection) -> None:
            nonlocal tried
            db.execute(_CUT_SCHEMA)
            if tried and db.execute("SELECT n FROM hocket_beginning").fetchone() == (number,):
                return  # The answer was lost, not the commit.
            tried = True
            if not db.execute(_BEGIN, given).rowcount:
                raise self._lose_to(one(db, "SELECT holder FROM hocket_writer")[0])

        self._done("written", begin)

    def _delete(self, last: int, most: int) -> int:
        given = {"epoch": self._epoch, "last": last, "most": most}

        def delete(db: Connection) -> int:
            removed = db.execute(_REMOVE, given).rowcount
            if not removed and one(db, "SELECT epoch FROM hocket_writer") != (self._epoch,):
                raise self._lose_to(one(db, "SELECT holder FROM hocket_writer")[0])
            return removed

        return self._done("written", delete)

    def _beginning_row(self) -> Row | None:
        if self._read("SELECT to_regclass('hocket_beginning') IS NULL") == [(True,)]:
            return None
        rows: list[Row] = self._read("SELECT n, value, crc FROM hocket_beginning")
        return rows[0] if rows else None

    def _ended_rows(self) -> Iterator[Row]:
        for first in range(1, self._ended_blocks() + 1, PAGE):
            select = "SELECT n, value, crc FROM hocket_ended WHERE n >= %s ORDER BY n LIMIT %s"
            yield from self._read(select, first, PAGE)

    def _ended_blocks(self) -> int:
        if self._read("SELECT to_regclass('hocket_ended') IS NULL") == [(True,)]:
            return 0
        ((number,),) = self._read("SELECT max(n) FROM hocket_ended")
        return int(number or 0)

    def _page(self, first: int) -> list[Row]:
        select = "SELECT n, value, crc FROM hocket_cycle WHERE n >= %s ORDER BY n LIMIT %s"
        return self._read(select, first, PAGE)

    def _newest(self) -> int:
        ((number,),) = self._read("SELECT max(n) FROM hocket_cycle")
        return int(number or 0)

    def _states(self) -> list[Row]:
        return self._read("SELECT n, value, crc FROM hocket_saved ORDER BY n DESC")

    def _read(self, select: str, *given: object) -> list[Any]:
        return self._done("read", lambda db: db.execute(select, given, binary=True).fetchall())

    def _done(self, what: str, work: Callable[[Connection], T]) -> T:
        """Do something in the session, and again in a new one if it was lost, for up to `patience_s`."""
        deadline_s = monotonic() + self._patience_s
        while True:
            try:
                if self._db is None or self._db.closed:
                    self._db = self._regained()
                return work(self._db)
            except psycopg.Error as error:
                is_lost = self._db is None or self._db.closed
                if not is_lost or monotonic() > deadline_s:
                    kind = JournalAway if is_lost else JournalError
                    raise kind(f"journal '{self.name}' cannot be {what}: {one_line(error)}") from error
            sleep(_RETRY_S)
