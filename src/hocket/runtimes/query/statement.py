"""Reads a query: one SELECT that reads its own tables and nothing else, with every column resolved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from string import ascii_lowercase, ascii_uppercase
from typing import TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

DIALECT = "duckdb"
T = TypeVar("T", bound=exp.Expr)
# Aggregates of DuckDB, and macros of its own that aggregate, which sqlglot takes for functions of a row.
AGGREGATES = frozenset(
    {
        "arbitrary", "arg_max_null", "arg_max_nulls_last", "arg_min_null", "arg_min_nulls_last",
        "bitstring_agg", "count_star", "entropy", "favg", "fsum", "geomean", "geometric_mean", "histogram",
        "histogram_exact", "json_group_array", "json_group_object", "json_group_structure", "kahan_sum",
        "kurtosis_pop", "mad", "product", "reservoir_quantile", "sem", "sum_no_overflow", "sumkahan", "wavg",
        "weighted_avg",
    }
)  # fmt: skip
_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # Other letters are as they are: so DuckDB does it.
Schema = Mapping[str, Mapping[str, str]]  # table → column → type


class QueryError(ValueError):
    """A query that cannot be run; one line for its user."""


class NotResolved(QueryError):
    """A query with columns that are not known; DuckDB may find some that we do not, as those of a lateral join."""


def read_statement(sql: str, schema: Schema) -> exp.Select:
    """The query with CTEs in place and all columns and stars resolved. Raises QueryError."""
    select = _only_select(sql)
    _refuse_what_is_no_table(select, schema)
    whole = _with_aggregates(_without_ctes(select))
    try:
        found = qualify(
            whole, schema=_in_lower_case(schema, {table.name.lower() for table in whole.find_all(exp.Table)}),
            dialect=DIALECT, validate_qualify_columns=True, quote_identifiers=False,
        )  # fmt: skip
    except OptimizeError as error:
        raise NotResolved(_explained(error, schema)) from error
    assert isinstance(found, exp.Select)
    for block in found.find_all(exp.Select):
        _write_out_all(block)
    for name in found.find_all(exp.Identifier):  # Those that a star stands for are as the data have them.
        name.set("quoted", name.args.get("quoted") or not exp.SAFE_IDENTIFIER_RE.match(name.this))
        name.meta.clear()  # Where it stood in the text is not asked any more, and every copy would copy it.
    return found


def _in_lower_case(schema: Schema, used: Collection[str]) -> MappingSchema:
    """The tables with these names, as `qualify` has names; it would parse every one of them to make it so."""
    tables: dict[str, object] = {
        name.translate(_ASCII_LOWER): {column.translate(_ASCII_LOWER): kind for column, kind in columns.items()}
        for name, columns in schema.items()
        if name.lower() in used
    }
    return MappingSchema(tables, dialect=DIALECT, normalize=False)


def _only_select(sql: str) -> exp.Select:
    try:
        statements = [s for s in sqlglot.parse(sql, read=DIALECT) if s is not None]
    except (ParseError, TokenError) as error:
        raise QueryError(f"the query cannot be read: {_one_line(error)}") from error
    if len(statements) != 1:
        raise QueryError(f"a query must be one statement, not {len(statements)}")
    (statement,) = statements
    if isinstance(statement, exp.SetOperation):
        raise QueryError(f"a query must be one SELECT; {statement.key.upper()} is not run progressively")
    if not isinstance(statement, exp.Select):
        raise QueryError(f"a query must be a SELECT, not {statement.key.upper()}")
    return statement


def _refuse_what_is_no_table(select: exp.Select, schema: Schema) -> None:
    """A query reads its data and nothing else: no files, no functions as tables, no INTO."""
    if select.args.get("into") is not None:
        raise QueryError("a query must not write: INTO is not allowed")
    known = {t.lower() for t in (*schema, *(cte.alias_or_name for cte in select.find_all(exp.CTE)))}
    for table in select.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise QueryError(f"a query reads its tables only, not {table.sql(DIALECT)[:80]}")
        if table.db or table.catalog:
            raise QueryError(f"table '{table.sql(DIALECT)}' must be named without schema or database")
        name = table.name
        if name.lower() not in known:
            raise QueryError(f"there is no table '{name}'{_meant(name, schema)}; tables: {', '.join(sorted(schema))}")


def _without_ctes(select: exp.Select) -> exp.Select:
    """Each reference to a CTE becomes a derived table, in the tree that is given."""
    if any(with_.args.get("recursive") for with_ in select.find_all(exp.With)):
        raise QueryError("recursive CTEs are not run progressively")
    # The innermost first: its names are others than those around it, though they may be spelled the same.
    for with_ in reversed(list(select.find_all(exp.With))):
        ready: dict[str, exp.Expr] = {}
        block = with_.parent
        assert block is not None
        with_.pop()
        for cte in with_.expressions:
            alias = cte.args["alias"]
            ready[alias.name.lower()] = exp.Subquery(this=_inlined(cte.this.copy(), ready), alias=alias.copy())
        _inlined(block, ready)
    return select


def _inlined(block: T, ready: Mapping[str, exp.Expr]) -> T:
    for table in list(block.find_all(exp.Table)):
        found = ready.get(table.name.lower())
        if found is not None:
            body = found.copy()
            if table.alias:
                columns = body.args["alias"].args.get("columns")
                body.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias), columns=columns))
            for more in ("joins", "laterals", "pivots", "sample"):
                body.set(more, table.args.get(more))
            table.replace(body)
    return block


def _with_aggregates(select: exp.Select) -> exp.Select:
    """The functions that aggregate, as such."""
    for node in list(select.find_all(exp.Anonymous)):
        if node.name.lower() == "mean":
            node.replace(exp.Avg(this=node.expressions[0]))
        elif node.name.lower() in AGGREGATES:
            node.replace(exp.AnonymousAggFunc(this=node.name, expressions=node.expressions))
    return select


def _write_out_all(select: exp.Select) -> None:
    """The columns that `GROUP BY ALL` and `ORDER BY ALL` stand for."""
    items = [item.unalias() for item in select.expressions]
    # A number would be that of a column.
    items = [item for item in items if item.find(exp.Column, exp.Func, exp.Query) is not None]
    group, order = select.args.get("group"), select.args.get("order")
    if group is not None and group.args.get("all"):
        single = [item.copy() for item in items if item.find(exp.AggFunc) is None]
        select.set("group", exp.Group(expressions=single) if single else None)
    if order is not None and len(order.expressions) == 1 and order.expressions[0].this == exp.var("ALL"):
        by = [order.expressions[0].copy() for _ in items]
        for ordered, item in zip(by, items, strict=True):
            ordered.set("this", item.copy())
        select.set("order", exp.Order(expressions=by) if by else None)


def _explained(error: OptimizeError, schema: Schema) -> str:
    said = _one_line(error)
    columns = {column for table in schema.values() for column in table}
    name = said.rpartition("'")[0].rpartition("'")[2] or said.split()[-1].strip("'\"")
    return f"{said[0].lower()}{said[1:]}{_meant(name.rpartition('.')[2], columns)}"


def _meant(name: str, known: object) -> str:
    close = get_close_matches(name, list(known), 1)  # type: ignore[call-overload]
    return f" (did you mean '{close[0]}'?)" if close else ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split("\n", 1)[0].split())[:300]
