"""What DuckDB could not do, in one line for the user of a query."""

from __future__ import annotations

import duckdb

from hocket.runtimes.query.statement import QueryError

_LONGEST = 500


def explained(what: str, error: duckdb.Error) -> QueryError:
    """An error that says what failed, and what to do if memory was short."""
    said = " ".join(str(error).split())
    if isinstance(error, duckdb.OutOfMemoryException):
        needed = said.partition(" Possible solutions")[0][:_LONGEST]
        return QueryError(f"{what}: {needed}: give it more memory (--memory), or fewer threads (--threads)")
    return QueryError(f"{what}: {said[:_LONGEST]}")
