"""Which journal a user means: a file is SQLite, a URL is PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hocket.control.journal.sqlite import SqliteJournal
from hocket.control.journal.stored import JournalError, one_line
from hocket.control.ports import DurableJournal, Header

if TYPE_CHECKING:
    from hocket.control.journal.postgresql import PostgresqlJournal

_SCHEMES = ("postgresql", "postgres")


def open_to_append(store: str | Path, header: Header) -> DurableJournal:
    """Hold a journal and go on with it, or begin it with this header where there is none.

    It is refused while another controller holds it.
    """
    if url := _url(store):
        return _postgresql()(url, header, goes_on=True)
    return SqliteJournal(store, header, goes_on=True)


def open_to_read(store: str | Path) -> DurableJournal:
    """A journal that is there, whether a controller holds it or not."""
    if url := _url(store):
        return _postgresql()(url)
    return SqliteJournal(store)


def _postgresql() -> type[PostgresqlJournal]:
    """Its driver is an extra, and is loaded when somebody has a URL."""
    try:
        from hocket.control.journal.postgresql import PostgresqlJournal
    except ImportError as error:
        raise JournalError(
            f"journal 'postgresql://…' needs psycopg ({one_line(error)}): pip install 'hocket[postgresql]'"
        ) from error
    return PostgresqlJournal


def _url(store: str | Path) -> str:
    """The URL that a store is, if it is one."""
    scheme, colon, _rest = str(store).partition("://")
    if not colon or isinstance(store, Path):
        return ""
    if scheme not in _SCHEMES:
        raise JournalError(f"journal '{scheme}://…': a store must be a file or a postgresql:// URL")
    return str(store)
