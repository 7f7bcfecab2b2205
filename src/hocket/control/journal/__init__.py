"""Journals: in memory, in SQLite, in PostgreSQL. When `append` has returned, the cycle survives `kill -9`."""

from __future__ import annotations

from hocket.control.journal.memory import MemoryJournal
from hocket.control.journal.open import open_to_append, open_to_read, open_to_remove
from hocket.control.journal.sqlite import SqliteJournal
from hocket.control.journal.stored import JournalError, JournalHeld, JournalLost

__all__ = [
    "JournalError",
    "JournalHeld",
    "JournalLost",
    "MemoryJournal",
    "SqliteJournal",
    "open_to_append",
    "open_to_read",
    "open_to_remove",
]
