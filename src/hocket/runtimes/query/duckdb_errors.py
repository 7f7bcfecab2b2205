"""What DuckDB could not do, in one line for the user of a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from hocket.runtimes.query.statement import QueryError

_LONGEST = 500


@contextmanager
def ctrl_c_as_interrupt() -> Iterator[None]:
    """Ctrl-C while DuckDB is at work, of which it makes a RuntimeError, is a KeyboardInterrupt again."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from error


def explained(what: str, error: duckdb.Error) -> QueryError:
    """An error that says what failed, and what to do if memory was short."""
    said = " ".join(str(error).split())
    if isinstance(error, duckdb.OutOfMemoryException):
        needed = said.partition(" Possible solutions")[0][:_LONGEST]
        return QueryError(f"{what}: {needed}: give it more memory (--memory), or fewer threads (--threads)")
    return QueryError(f"{what}: {said[:_LONGEST]}")
