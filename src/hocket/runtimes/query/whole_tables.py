"""Tables that every batch reads whole: what of them a query can use is found once, after the first batch.

Customers of one region, say: the conditions on the table alone, and those that it is joined to tables of fewer rows by.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from sqlglot import exp

from hocket.runtimes.query.blocks import Block, TableUse, UsedColumn, equal_columns, own_expressions
from hocket.runtimes.query.sql_text import quoted
from hocket.runtimes.query.statement import DIALECT


class UsedRows(NamedTuple):
    """The rows of a table that a query can use at one place."""

    name: str  # of the table that holds them
    sql: str


def used_rows(top: Block, split: Collection[TableUse], rows: Callable[[str], float]) -> dict[TableUse, UsedRows]:
    """The rows to read of each table that is not split and has conditions; `rows` says how many a table has."""
    found: dict[TableUse, UsedRows] = {}
    names: dict[str, str] = {}  # by SQL: two blocks may use the same rows
    for block in top.all_blocks():
        if any(use in split for use in block.uses()) and _joins_are_inner(block):
            found |= _of_block(block, split, rows, names)
    return found


def _joins_are_inner(block: Block) -> bool:
    """Whether all joins are inner: in others, a row without a match counts too."""
    joins = block.select.args.get("joins") or ()
    return not any(j.side or j.method or (j.kind or "").upper() not in ("", "INNER", "CROSS") for j in joins)


def _of_block(
    block: Block,
    split: Collection[TableUse],
    rows: Callable[[str], float],
    names: dict[str, str],
) -> dict[TableUse, UsedRows]:
    uses = block.tables.values()
    own = {use: list(_own_conditions(block, use)) for use in uses}
    found: dict[TableUse, UsedRows] = {}
    classes = equal_columns(block.equalities)
    for use in sorted((use for use in uses if use not in split), key=lambda use: rows(use.table)):
        conditions = [condition.sql(DIALECT) for condition in own[use]]
        for column, other in _equal(use, classes):
            if other.use in found:
                among = f"SELECT {quoted(other.column)} FROM {found[other.use].name}"
            elif other.use in split and own.get(other.use) and rows(use.table) > rows(other.use.table):
                among = _select(other.use, {other.column}, [c.sql(DIALECT) for c in own[other.use]])
            else:
                continue
            conditions.append(f"{quoted(use.alias)}.{quoted(column)} IN ({among})")
        if conditions:
            sql = _select(use, _columns(block, use.alias), conditions)
            found[use] = UsedRows(names.setdefault(sql, f"hocket_used_{block.number}_{len(found)}"), sql)
    return found


def _own_conditions(block: Block, use: TableUse) -> Iterator[exp.Expr]:
    """The conditions of a block that are about one table only, row by row."""
    for condition in block.conditions():
        columns = list(condition.find_all(exp.Column))
        if columns and all(c.table == use.alias for c in columns) and condition.find(exp.Query) is None:
            yield condition


def _equal(use: TableUse, classes: list[set[UsedColumn]]) -> Iterator[tuple[str, UsedColumn]]:
    for equal in classes:
        mine = sorted(column.column for column in equal if column.use == use)
        yield from ((mine[0], other) for other in sorted(equal) if mine and other.use != use)


def _columns(block: Block, alias: str) -> set[str]:
    """The columns of a table that its block names, and blocks within it that have no other of that alias."""
    found = {column.name for column in own_expressions(block.select, exp.Column) if _table_of(column) == alias}
    for inner in (*block.derived.values(), *block.nested):
        if alias not in inner.tables and alias not in inner.derived:
            found |= _columns(inner, alias)
    return found


def _table_of(column: exp.Expr) -> str:
    return column.table if isinstance(column, exp.Column) else ""


def _select(use: TableUse, columns: set[str], conditions: list[str]) -> str:
    alias = quoted(use.alias)
    shown = ", ".join(f"{alias}.{quoted(column)}" for column in sorted(columns)) or "1 AS one"
    return f"SELECT {shown} FROM {quoted(use.table)} AS {alias} WHERE {' AND '.join(map('({})'.format, conditions))}"
