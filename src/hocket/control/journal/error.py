"""What can be wrong with a journal. Every message is one line and names the store."""

from __future__ import annotations


class JournalError(ValueError):
    """A journal that cannot be read or written; the message names the store."""


class JournalHeld(JournalError):
    """Another controller appends to this journal; the message says which, and since when."""


class JournalLost(JournalError):
    """Another controller has taken the journal over, or its file is gone; nothing can be appended any more."""


def one_line(error: BaseException) -> str:
    """What an error of a library says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
