"""Aggregates in parts: what each batch computes, and how the parts of several batches are merged.

Parts are kept and merged in DuckDB, whatever computed them. `{w}` in a merge stands for the weight by which sums are
scaled up to all rows. It is left out when all rows are there: the answer has the type and digits of a plain run.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from hocket.runtimes.query.blocks import Block, NotSplit, UsedColumn
from hocket.runtimes.query.statement import DIALECT

_MOMENTS = (exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp)


class Parts(NamedTuple):
    """One aggregate of a query."""

    parts: tuple[str, ...]  # SQL of each part
    merge: str  # SQL over rows of parts: {0}, {1}, … are their columns, {w} the weight
    exact: str  # the same when all rows are there
    has_interval: bool = True
    keeps_values: bool = False  # a part is about as large as what it was computed from


def in_parts(node: exp.Expr, block: Block, key: tuple[UsedColumn, ...]) -> Parts:
    """How an aggregate (with its FILTER, if it has one) is computed in parts. Raises NotSplit."""
    if isinstance(node, exp.Filter):
        return _of(node.this, block, key, [node.expression.this.sql(DIALECT)])
    return _of(node, block, key, [])


def _of(node: exp.Expr, block: Block, key: tuple[UsedColumn, ...], filters: list[str]) -> Parts:
    argument = node.this
    is_distinct = isinstance(argument, exp.Distinct)
    if is_distinct and isinstance(node, exp.Min | exp.Max):
        argument, is_distinct = argument.expressions[0], False
    sql = argument.sql(DIALECT) if isinstance(argument, exp.Expr) else "*"
    if isinstance(node, exp.Count):
        if not is_distinct:
            merge = "coalesce(sum({0}), 0)"
            return Parts((_call("count", sql, filters),), f"{merge} * {{w}}", f"{merge}::BIGINT")
        values = argument.expressions
        if len(values) == 1 and block.resolved(values[0]) in key:  # Each value is in one bucket.
            merge = "coalesce(sum({0}), 0)"
            return Parts((_call("count", sql, filters),), f"{merge} * {{w}}", f"{merge}::BIGINT")
        if len(values) == 1 and not isinstance(values[0], exp.Tuple | exp.Anonymous):  # Rows are not kept in lists.
            part = _call("list", sql, [f"{values[0].sql(DIALECT)} IS NOT NULL", *filters])
            merge = "coalesce(len(list_distinct(flatten(list({0})))), 0)"
            return Parts((part,), merge, f"{merge}::BIGINT", has_interval=False, keeps_values=True)
    elif isinstance(node, exp.CountIf) and not is_distinct:
        return Parts((_call("count_if", sql, filters),), "sum({0}) * {w}", "sum({0})")
    elif isinstance(node, exp.Sum) and not is_distinct:
        return Parts((_call("sum", sql, filters),), "sum({0}) * {w}", "sum({0})")
    elif isinstance(node, exp.Avg) and not is_distinct:
        merge = "sum({0})::DOUBLE / nullif(sum({1}), 0)"
        return Parts((_call("sum", sql, filters), _call("count", sql, filters)), merge, merge)
    elif isinstance(node, exp.Min | exp.Max) and not node.args.get("count"):  # max(x, 3) is a list of the largest.
        name = node.key
        return Parts((_call(name, sql, filters),), f"{name}({{0}})", f"{name}({{0}})", has_interval=False)
    elif isinstance(node, _MOMENTS) and not is_distinct:
        return _moments(node, sql, filters)
    raise NotSplit(f"{node.sql(DIALECT)[:60]} cannot be merged from parts of a group")


def _call(name: str, sql: str, filters: list[str]) -> str:
    """SQL of an aggregate of the rows that meet all conditions."""
    condition = f" FILTER (WHERE {' AND '.join(map('({})'.format, filters))})" if filters else ""
    return f"{name}({sql}){condition}"


def _moments(node: exp.Expr, sql: str, filters: list[str]) -> Parts:
    """Variances, by counts, means and squared deviations, which are merged without cancellation (Chan et al.)."""
    value = f"({sql})::DOUBLE"
    count, mean, variance_pop = (_call(name, value, filters) for name in ("count", "avg", "var_pop"))
    parts = count, mean, f"{variance_pop} * {count}"
    row = "{{'n': {0}, 'mean': {1}, 'm2': {2}}}"
    merged = (
        f"list_reduce(list({row}) FILTER ({{0}} > 0), lambda a, b: {{{{'n': a.n + b.n, "
        "'mean': a.mean + (b.mean - a.mean) * b.n / (a.n + b.n), "
        "'m2': a.m2 + b.m2 + (b.mean - a.mean) ** 2 * a.n * b.n / (a.n + b.n)}})"
    )
    is_population = isinstance(node, exp.VariancePop | exp.StddevPop)
    of = "sum({0})" if is_population else "nullif(sum({0}) - 1, 0)"
    variance = f"(({merged}).m2 / nullif({of}, 0))"
    is_root = isinstance(node, exp.Stddev | exp.StddevPop | exp.StddevSamp)
    merge = f"sqrt({variance})" if is_root else variance
    return Parts(parts, merge, merge)
