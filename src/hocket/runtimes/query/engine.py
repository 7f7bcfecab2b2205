"""What computes the batches of a query, and what it must know of its tables.

All SQL is written in DuckDB's dialect, and the parts of batches are merged in a DuckDB connection of this process. An
engine says where the rows are, and runs a SELECT over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from hocket.runtimes.query.split_key import Split, Statistics

if TYPE_CHECKING:
    import duckdb
    from sqlglot import exp

    from hocket.runtimes.query.batch_sql import UnitRows
    from hocket.runtimes.query.statement import Schema


class QueryEngine(Statistics, Protocol):
    """The tables of a query, and what reads them."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Where parts are merged; its tables have the columns of the data, and their rows if DuckDB is the engine."""

    @property
    def schema(self) -> Schema:
        """The tables, with their columns and DuckDB's types of them."""

    def unit_rows(self, table: str, column: str) -> UnitRows:
        """The rows of a table, with the hash class of a column."""

    def how_read(self, split: Split) -> str:
        """Whether the batches of a query read their parts only, in words."""

    def changed_source(self) -> str:
        """What prepared data are no longer the same as, in words; empty if nothing is known to have changed."""

    def identity(self) -> str:
        """Tells these data, in this order, from others."""

    def check_files(self) -> None:
        """Notice files that changed since they were opened. Raises QueryError."""

    def check_statement(self, statement: exp.Expr) -> None:
        """Refuse what this engine may compute otherwise than DuckDB. Raises QueryError."""

    def compute_once(self, name: str, sql: str, *, for_answers: bool) -> None:
        """Compute a table that all batches read; if it is `for_answers`, the connection has it for these."""

    def add_batch(self, name: str, sql: str, *, is_first: bool) -> int:
        """Add the rows of a SELECT to a table of the connection, which the first one creates; gives how many."""

    def rows_of(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, in its order."""

    def interrupt(self) -> None:
        """End what is under way, from another thread."""

    def close(self) -> None:
        """Close the data."""
