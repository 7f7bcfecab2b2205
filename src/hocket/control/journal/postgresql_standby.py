"""Waits for a journal in PostgreSQL that another controller holds, until that ends or stands still."""

from __future__ import annotations

import logging
from time import monotonic

import psycopg

from hocket.control.journal.lock import describe_holder
from hocket.control.journal.postgresql_presence import EVERY_S, Presence
from hocket.control.journal.postgresql_session import connect, may_pass, name_of, one, read_url, session_with_lock
from hocket.control.journal.stored import JournalAway, JournalError, one_line

_log = logging.getLogger("hocket.journal")
_PATIENCE_S = 5.0  # for a server that does not answer


class StillWatch:
    """How long a number has not changed, in time that this process ran: while it was suspended, it saw nothing."""

    def __init__(self) -> None:
        self._last: object = None
        self._still_s = self._looked_s = 0.0

    def still_s(self, number: object, now_s: float) -> float:
        """The number is this now."""
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if number != self._last:
            self._last, self._still_s = number, 0.0
        else:
            self._still_s += min(passed_s, 4 * EVERY_S)
        return self._still_s


class PostgresqlStandby:
    """A controller that is to take over."""

    def __init__(self, url: str, called_at: str, token: str, takeover_s: float) -> None:
        """It will be called at `called_at`. A holder that stands still for `takeover_s` loses the journal.

        `token` is the digest of the one that this controller takes; agents and users have one for both. Raises
        JournalError.
        """
        self._target = read_url(url)
        self.name = name_of(self._target)
        self._called_at, self._token, self._takeover_s = called_at, token, takeover_s
        self._watch = StillWatch()
        self._presence: Presence | None = None

    def holder(self) -> str:
        """Say that it is there; what holds the journal, in words, or nothing if it can be had.

        Raises JournalAway if the database does not answer now, and JournalError for what waiting does not mend.
        """
        try:
            return self._holder()
        except psycopg.Error as error:
            self.close()
            kind = JournalAway if may_pass(error) else JournalError
            raise kind(f"journal '{self.name}' cannot be read: {one_line(error)}") from error

    def close(self) -> None:
        """End its session."""
        if self._presence is not None:
            self._presence.close()
            self._presence = None

    def _holder(self) -> str:
        if self._presence is None:
            with connect(self._target, _PATIENCE_S, reads=True) as db:
                if one(db, "SELECT to_regclass('hocket_writer') IS NULL") == (True,):
                    return ""  # There is no journal yet.
            self._presence = Presence(lambda: connect(self._target, _PATIENCE_S))
            self._presence.url, self._presence.token = self._called_at, self._token
        self._presence.beat()
        db, seen = self._presence.session, self._presence.holder()
        if (session := session_with_lock(db)) is None:
            return ""
        held_by = describe_holder(seen.name)
        if seen.token and seen.token != self._token:
            raise JournalError(
                f"journal '{self.name}' is held by {held_by}, which has another token: agents and users that know its "
                "token would not be let in here; copy the file 'token' of its home into this one"
            )
        still_s = self._watch.still_s(seen.beat, monotonic())
        if seen.beat[0] and still_s > self._takeover_s:
            _log.warning("%s stands still for %.1f s: its journal is taken over", held_by, still_s)
            if one(db, "SELECT pg_terminate_backend(%s)", session) == (True,):
                return ""
        return held_by

    def controllers(self) -> tuple[str, ...]:
        """Where controllers of this journal are called, this one first."""
        return () if self._presence is None else self._presence.urls
