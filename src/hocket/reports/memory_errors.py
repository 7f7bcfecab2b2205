"""Errors of a process whose memory is limited, by which its user is told that the limit was too small."""

from __future__ import annotations

_WORDS = ("out of memory", "cannot allocate memory")  # of SQLite, and of the system


def is_out_of_memory(error: BaseException | None) -> bool:
    """Files, libraries and databases that find no memory have errors of their own, and often wrap them in others."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in _WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False
