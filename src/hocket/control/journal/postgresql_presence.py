"""The controllers of a journal in PostgreSQL: each says several times a second that it is there.

The lock on a journal says which process may append. It does not say whether that process still runs: one that is
stopped keeps its lock, and one that is cut off from the server keeps working without it. So the holder counts up a
number (*beats*): others see by it that the holder stands still, and the holder itself knows by each answered beat that
it had the journal when it sent it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from secrets import token_hex
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import NamedTuple

import psycopg

from hocket.control.journal.lock import close_in_children
from hocket.control.journal.postgresql_session import CREATE_LOCK, Connection, one
from hocket.control.journal.stored import one_line

_log = logging.getLogger("hocket.journal")
EVERY_S = 0.25  # between beats
_END_S = 2.0  # for a beat that is under way
_KEPT = "1 hour"  # for so long the address of a controller that is gone is told to agents

_TABLE = """
CREATE TABLE IF NOT EXISTS hocket_controller (
    name text PRIMARY KEY, url text NOT NULL, token text NOT NULL, epoch bigint NOT NULL, notes text NOT NULL,
    beat bigint NOT NULL, seen timestamptz NOT NULL)
"""
_LAZY = "SET synchronous_commit = off"  # A beat that is lost in a crash of the server is said again.
_BEAT = f"""
WITH gone AS (DELETE FROM hocket_controller WHERE epoch <> (SELECT epoch FROM hocket_writer)
              AND (seen < now() - interval '{_KEPT}' OR (url = %(url)s AND name <> %(name)s)))
INSERT INTO hocket_controller VALUES (%(name)s, %(url)s, %(token)s, %(epoch)s, %(notes)s, 1, now())
ON CONFLICT (name) DO UPDATE SET url = excluded.url, token = excluded.token, epoch = excluded.epoch,
    notes = excluded.notes, beat = hocket_controller.beat + 1, seen = excluded.seen
"""


class HolderSeen(NamedTuple):
    """The controller that holds a journal, as another sees it."""

    name: bytes  # as it wrote it beside the journal
    beat: tuple[str, int]  # changes several times a second while it runs; ("", 0) of one that tells none
    url: str
    token: str  # the digest of its token; empty if it has not told it yet


class Presence:
    """This process in the table of controllers, with a session of its own."""

    def __init__(self, connect: Callable[[], Connection], epoch: int = 0) -> None:
        """Without an epoch, it does not hold the journal. Raises psycopg.Error."""
        self._connect, self._epoch = connect, epoch
        self._name = token_hex(8)
        self._db: Connection | None = connect()
        if one(self._db, "SELECT to_regclass('hocket_controller') IS NULL") == (True,):
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))  # Two may create it at once.
                self._db.execute(_TABLE)
        self._db.execute(_LAZY)
        self.url = self.token = self.notes = ""
        row = self._db.execute(
            "SELECT notes FROM hocket_controller WHERE epoch BETWEEN 1 AND %s ORDER BY epoch DESC LIMIT 1", (epoch - 1,)
        ).fetchone()
        self.notes_before = "" if row is None else str(row[0])  # of the holder before this one
        self.urls: tuple[str, ...] = ()  # of all controllers that were there in the last hour, this one's first

    def beat(self) -> bytes | None:
        """Say that it is there; the holder of the journal if that is another process. Raises psycopg.Error."""
        db = self._db
        if db is None or db.closed:
            db = self._db = self._connect()
            db.execute(_LAZY)
        url = self.url  # Another thread may set it meanwhile.
        told = {"name": self._name, "url": url, "token": self.token, "epoch": self._epoch, "notes": self.notes}
        db.execute(_BEAT, told)
        found = db.execute("SELECT DISTINCT url FROM hocket_controller WHERE url NOT IN ('', %s) ORDER BY 1", (url,))
        self.urls = (*((url,) if url else ()), *(url for (url,) in found.fetchall()))
        epoch, holder = one(db, "SELECT epoch, holder FROM hocket_writer")
        return None if epoch == self._epoch else bytes(holder)

    def holder(self) -> HolderSeen:
        """What is known of the process that held the journal last. Raises psycopg.Error."""
        assert self._db is not None
        name, beat, number, url, token = one(
            self._db,
            "SELECT w.holder, coalesce(c.name, ''), coalesce(c.beat, 0), coalesce(c.url, ''), coalesce(c.token, '') "
            "FROM hocket_writer w LEFT JOIN hocket_controller c ON c.epoch = w.epoch AND w.epoch > 0",
        )
        return HolderSeen(bytes(name), (beat, number), url, token)

    @property
    def session(self) -> Connection:
        """The session of the last beat."""
        assert self._db is not None
        return self._db

    def close(self) -> None:
        """End the session."""
        if self._db is not None:
            self._db.close()

    def leave(self) -> None:
        """In a forked child: drop the session without sending anything to the server."""
        if self._db is not None and not self._db.closed:
            os.close(self._db.fileno())


class HolderBeats:
    """Beats in a thread, and so knows other controllers, and when it was last certain that it holds the journal."""

    def __init__(self, presence: Presence, lose: Callable[[bytes], object]) -> None:
        """`lose` is called with the new holder when another process has taken the journal over."""
        self._presence, self._lose = presence, lose
        self._confirmed_s = monotonic()  # The epoch was raised just before.
        self._ended = Flag()
        self._trouble = ""
        close_in_children(presence)
        self._thread = Thread(target=self._run, name="journal-beats", daemon=True)
        self._thread.start()

    def unconfirmed_s(self) -> float:
        """For how long it has not been certain."""
        return monotonic() - self._confirmed_s

    def advertise(self, url: str, token: str) -> None:
        """With the next beat, tell where this controller is called, and the digest of the token that it takes."""
        self._presence.url, self._presence.token = url, token

    def urls(self) -> tuple[str, ...]:
        """Where this controller is called, and those that may take over."""
        return self._presence.urls

    def share_notes(self, notes: str) -> None:
        """With the next beat, keep this for the next controller."""
        self._presence.notes = notes

    def notes_before(self) -> str:
        """What the controller before this one kept."""
        return self._presence.notes_before

    def end(self) -> None:
        """Beat no more."""
        self._ended.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        is_held = self._beat()
        while is_held and not self._ended.wait(EVERY_S):
            is_held = self._beat()
        if is_held:
            self._beat()  # What was noted last.
        self._presence.close()

    def _beat(self) -> bool:
        """Beat once; False when there is no more to hold."""
        sent_s = monotonic()
        try:
            other = self._presence.beat()
        except psycopg.Error as error:
            if (trouble := one_line(error)) != self._trouble:
                self._trouble = trouble
                _log.warning("it is not certain that this controller still has its journal: %s", trouble)
            return True
        if other is not None:
            self._lose(other)
            return False
        self._confirmed_s = sent_s
        if self._trouble:
            self._trouble = ""
            _log.info("the journal is still this controller's")
        return True
