"""Journals: in memory, in SQLite, in PostgreSQL. When `append` has returned, the cycle survives `kill -9`."""

from __future__ import annotations

from hocket.control.journal.memory import MemoryJournal
from hocket.control.journal.open import open_to_append, open_to_read, open_to_remove, standby_of
from hocket.control.journal.sqlite import SqliteJournal
from hocket.control.journal.stored import JournalAway, JournalError, JournalHeld, JournalLost

__all__ = [
    "JournalAway",
    "JournalError",
    "JournalHeld",
    "JournalLost",
    "MemoryJournal",
    "SqliteJournal",
    "open_to_append",
    "open_to_read",
    "open_to_remove",
    "standby_of",
]
