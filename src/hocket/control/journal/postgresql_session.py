"""Sessions with a PostgreSQL server, and the lock by which one controller at a time appends to a journal there."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from hocket.control.journal.stored import JournalError

# Both sides must notice within seconds that the other is gone; else a dead host would keep its lock for hours.
_ALIVE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
_SESSION = """
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
_CLASS = 0x686F636B  # of advisory locks, ours
_LOCK = _CLASS << 32  # the rest is the table's own number
CREATE_LOCK = _LOCK  # no table has the number 0

Connection = psycopg.Connection[tuple[Any, ...]]
Target = dict[str, Any]  # what a URL says, by the names of libpq


def read_url(url: str) -> Target:
    """Where the database is. Raises JournalError."""
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:  # The error's text may contain a password.
        raise JournalError(f"journal '{url.partition('://')[0]}://…': the URL cannot be read") from error


def connect(target: Target, patience_s: float, *, reads: bool = False) -> Connection:
    """A session; `patience_s` is how long to wait for a server that does not answer, or for a locked table."""
    patience = {"connect_timeout": max(2, int(patience_s))}
    whole: Target = {"application_name": "hocket", **_ALIVE, **patience, **target}
    db = psycopg.connect(make_conninfo(**whole), autocommit=True)
    try:
        db.execute(_SESSION)
        db.execute("SELECT set_config('lock_timeout', %s, false)", (f"{int(patience_s * 1000)}ms",))
        if db.info.server_version >= 140_000:
            db.execute("SET idle_session_timeout = 0")  # An idle session must not lose the lock.
        if reads:
            db.execute("SET default_transaction_read_only = on")
    except BaseException:
        db.close()
        raise
    return db


def try_lock(db: Connection) -> bool:
    """Take the lock of the journal for this session, unless another session has it."""
    return one(db, "SELECT pg_try_advisory_lock(%s + 'hocket_cycle'::regclass::oid::bigint)", _LOCK) == (True,)


def session_with_lock(db: Connection) -> int | None:
    """The server's process for the session that has the lock of the journal; None if it is free."""
    row = db.execute(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objsubid = 1 AND granted "
        "AND objid = 'hocket_cycle'::regclass "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        (_CLASS,),
    ).fetchone()
    return None if row is None else int(row[0])


def one(db: Connection, statement: str, *given: object) -> tuple[Any, ...]:
    """The only row of the result."""
    row = db.execute(statement, given).fetchone()
    if row is None:
        raise psycopg.DataError("the journal's tables are incomplete")
    return row


def name_of(target: Target) -> str:
    """The URL for messages, without password and options."""
    user, port = target.get("user"), target.get("port")
    where = f"{f'{user}@' if user else ''}{target.get('host') or ''}{f':{port}' if port else ''}"
    return f"postgresql://{where}/{target.get('dbname') or ''}"


_FOR_GOOD = ("does not exist", "authentication failed", "no password supplied", "pg_hba.conf", "permission denied")


def may_pass(error: psycopg.Error) -> bool:
    """Whether it may go better later: connections that fail, servers that start, stop or have no place."""
    # A connection that is refused has no code, only words.
    return isinstance(error, psycopg.OperationalError) and not any(words in str(error) for words in _FOR_GOOD)
