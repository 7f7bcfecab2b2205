"""Functions that keep a query from being split: they are not the same in every batch, or hide what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from hocket.runtimes.query.blocks import NotSplit
from hocket.runtimes.query.statement import DIALECT

if TYPE_CHECKING:
    import duckdb

_CHANGING = (
    exp.CurrentDate, exp.CurrentDatetime, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp,
    exp.Rand, exp.Uuid,
)  # fmt: skip
CHANGING_NAMES = frozenset(  # those of them that sqlglot knows nothing of
    {
        "ago", "currval", "get_current_timestamp", "nextval", "now", "pg_sleep", "sleep_ms",
        "transaction_timestamp", "txid_current", "uuidv4", "uuidv7",
    }
)  # fmt: skip


def require_same_in_batches(statement: exp.Expr) -> None:
    """Rows of two batches must mean the same, also if one of them is computed tomorrow. Raises NotSplit."""
    for node in statement.find_all(exp.Func):
        if isinstance(node, _CHANGING) or (isinstance(node, exp.Anonymous) and node.name.lower() in CHANGING_NAMES):
            raise NotSplit(f"{node.sql(DIALECT)[:40]} is not the same in every batch")
    for star in statement.find_all(exp.Star, exp.Columns):
        if not isinstance(star.parent, exp.Count):  # With the rows of a batch come columns of their own.
            raise NotSplit("a star in an expression is not split")


def macro_in(statement: exp.Expr, connection: duckdb.DuckDBPyConnection) -> str:
    """The first macro of the data that a query calls, which may aggregate; empty if there is none."""
    called = sorted({node.name.lower() for node in statement.find_all(exp.Anonymous)})
    if not called:  # To look it up takes longer than to read the query.
        return ""
    macros = "SELECT function_name FROM duckdb_functions() WHERE function_type = 'macro' AND NOT internal"
    known = {name.lower() for (name,) in connection.execute(macros).fetchall()}
    return next((name for name in called if name in known), "")
