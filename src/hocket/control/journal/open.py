"""Opens a journal by its name: a file is SQLite, a URL is PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hocket.control.journal.sqlite import SqliteJournal
from hocket.control.journal.stored import JournalError, StoredJournal, one_line
from hocket.control.ports import Header

if TYPE_CHECKING:
    from hocket.control.journal.postgresql import PostgresqlJournal
    from hocket.control.journal.postgresql_standby import PostgresqlStandby

_SCHEMES = ("postgresql", "postgres")


def open_to_append(store: str | Path, header: Header) -> StoredJournal:
    """Open a journal to append to it; if there is none, create it with this header.

    It is refused while another controller holds it.
    """
    if url := _url(store):
        return _postgresql()(url, header, goes_on=True)
    return SqliteJournal(store, header, goes_on=True)


def open_to_read(store: str | Path) -> StoredJournal:
    """Open an existing journal, whether a controller holds it or not."""
    if url := _url(store):
        return _postgresql()(url)
    return SqliteJournal(store)


def open_to_remove(store: str | Path, epoch: int) -> StoredJournal:
    """Open a journal to remove old cycles, for the controller that holds it with this epoch."""
    if url := _url(store):
        return _postgresql()(url, epoch=epoch)
    return SqliteJournal(store, epoch=epoch)


def standby_of(store: str | Path, called_at: str, token: str, takeover_s: float) -> PostgresqlStandby:
    """A controller that waits for a journal; see there. Raises JournalError."""
    if not (url := _url(store)):
        raise JournalError(f"journal '{store}': only a journal in PostgreSQL can have a controller that stands by")
    _postgresql()
    from hocket.control.journal.postgresql_standby import PostgresqlStandby

    return PostgresqlStandby(url, called_at, token, takeover_s)


def _postgresql() -> type[PostgresqlJournal]:
    """Its driver is an extra, and is imported only for a URL."""
    try:
        from hocket.control.journal.postgresql import PostgresqlJournal
    except ImportError as error:
        raise JournalError(
            f"journal 'postgresql://…' needs psycopg ({one_line(error)}): pip install 'hocket[postgresql]'"
        ) from error
    return PostgresqlJournal


def _url(store: str | Path) -> str:
    """The store as a URL, if it is one."""
    scheme, colon, _rest = str(store).partition("://")
    if not colon or isinstance(store, Path):
        return ""
    if scheme not in _SCHEMES:
        raise JournalError(f"journal '{scheme}://…': a store must be a file or a postgresql:// URL")
    return str(store)
