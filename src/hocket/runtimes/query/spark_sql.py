"""DuckDB's SQL as Spark's: the same text in another dialect, and the same answer where the two compute otherwise.

What is not known to mean the same in both is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from hocket.runtimes.query.blocks import is_window_function
from hocket.runtimes.query.prepared_layout import UNITS
from hocket.runtimes.query.statement import DIALECT, QueryError

UNIT_OF_HASH = "hocket_unit_of_hash"  # of `hash(…)` and a seed: the hash class
_SPARK = "spark"
_SAME: tuple[type[exp.Expr], ...] = (
    # blocks
    exp.Select, exp.From, exp.Join, exp.Table, exp.TableAlias, exp.Subquery, exp.Where, exp.Group, exp.Having,
    exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Qualify, exp.Distinct, exp.SetOperation, exp.With, exp.CTE,
    # values
    exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Tuple,
    exp.Var, exp.Interval, exp.IntervalSpan, exp.DataType, exp.DataTypeParam, exp.Cast, exp.TryCast,
    # conditions
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between,
    exp.Exists, exp.Like, exp.ILike, exp.Escape, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Case, exp.If, exp.Coalesce,
    exp.Nullif,
    # numbers
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Abs, exp.Floor, exp.Ceil, exp.Round,
    exp.Greatest, exp.Least,
    # texts and times
    exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.Substring, exp.DPipe, exp.StartsWith, exp.Extract, exp.Year,
    exp.Month, exp.Day, exp.DateTrunc, exp.TimestampTrunc,
    # aggregates and windows
    exp.Sum, exp.Count, exp.Avg, exp.Min, exp.Max, exp.CountIf, exp.Variance, exp.VariancePop, exp.Stddev,
    exp.StddevPop, exp.StddevSamp, exp.Filter, exp.Window, exp.WindowSpec, exp.RowNumber, exp.Rank, exp.DenseRank,
    exp.Lag, exp.Lead,
)  # fmt: skip
_PARTS_OF_TIME = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE")
_TRUNCATED_TO = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_NO_ESCAPE = "\x01"  # in no pattern; a backslash is none in DuckDB

NameOf = Callable[[str, str], str]  # of a table, by its schema and name: what Spark calls it


def refuse_what_differs(statement: exp.Expr) -> None:
    """A query must give the same answers in Spark as in DuckDB. Raises QueryError."""
    for node in statement.walk():
        if not isinstance(node, _SAME) or not _is_same(node):
            what = node.sql(DIALECT)[:60]
            raise QueryError(f"{what} is not run by Spark, where it may mean something else: use DuckDB as the engine")


def _is_same(node: exp.Expr) -> bool:
    if isinstance(node, exp.Extract):
        return node.name.upper() in _PARTS_OF_TIME
    if isinstance(node, exp.Substring):  # What is before the first letter is counted otherwise.
        start = node.args.get("start")
        return isinstance(start, exp.Literal) and start.is_int and int(start.name) > 0
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):
        return _unit_of(node) in _TRUNCATED_TO
    if isinstance(node, exp.Qualify):  # sqlglot does not translate it with aggregates.
        return node.parent is None or node.parent.args.get("group") is None
    if isinstance(node, exp.Round):
        return not node.args.get("truncate")
    return not isinstance(node, exp.Trim) or node.expression is None


def spark_sql(sql: str, name_of: NameOf) -> str:
    """A SELECT of DuckDB in Spark's dialect, with tables by the names that they have there."""
    parsed: exp.Expr = exp.maybe_parse(sql, dialect=DIALECT)
    for node in reversed(list(parsed.walk())):  # what is inside first
        again = _rewritten(node)
        if again is not node:
            node.replace(again)
    for table in parsed.find_all(exp.Table):
        table.set("this", exp.to_identifier(name_of(table.db, table.name), quoted=True))
        table.set("db", None)
    return parsed.sql(_SPARK, identify=True)


def _rewritten(node: exp.Expr) -> exp.Expr:
    """What Spark computes as DuckDB does; the node itself if that is the same text."""
    if isinstance(node, exp.Div):
        return _quotient(node)
    if isinstance(node, exp.IntDiv):
        return _parsed(
            f"CASE WHEN {_is_integer(node.left)} AND {_is_integer(node.right)} THEN {_text(node.left)} "
            f"DIV {_not_zero(node.right)} ELSE raise_error('// is run by Spark for integers only') END"
        )
    if isinstance(node, exp.Mod):
        return _parsed(f"({_text(node.left)}) % {_not_zero(node.right)}")
    if isinstance(node, exp.Avg):
        return node if isinstance(node.parent, exp.Filter) else _mean(node, "")
    if isinstance(node, exp.Filter) and isinstance(node.this, exp.Avg):
        return _mean(node.this, f" FILTER ({_text(node.expression)})")
    if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
        pattern = node.expression
        has_none = isinstance(pattern, exp.Literal) and "\\" not in pattern.name
        return node if has_none else exp.Escape(this=node.copy(), expression=exp.Literal.string(_NO_ESCAPE))
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):  # by dates, which no time zone changes
        day = f"CAST({_text(node.this)} AS DATE)"
        start = day if _unit_of(node) == "DAY" else f"trunc({day}, '{_unit_of(node)}')"
        return _parsed(f"CAST({start} AS TIMESTAMP_NTZ)")
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.INTEGER_TYPES):
        return node if _is_condition(node.this) or _is_hashed(node) else _as_integer(node)
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES):
        return _as_text(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() == UNIT_OF_HASH:
        hashed, seed = node.expressions
        values = ", ".join(_text(value) for value in (*hashed.expressions, *([seed] if seed.name != "0" else [])))
        return _parsed(f"CAST(pmod(xxhash64({values}), {UNITS}) AS INT)")
    return node


def _quotient(node: exp.Div) -> exp.Expr:
    """A quotient of floating-point numbers, whatever is divided; by zero it is infinite, or not a number."""
    above, below = f"CAST({_text(node.left)} AS DOUBLE)", f"CAST({_text(node.right)} AS DOUBLE)"
    if isinstance(node.right, exp.Literal) and float(node.right.name):
        return _parsed(f"{above} / {below}")
    return _parsed(f"CASE WHEN {below} = 0 THEN {above} * CAST('Infinity' AS DOUBLE) ELSE {above} / {below} END")


def _mean(node: exp.Avg, condition: str) -> exp.Expr:
    """A mean, from an exact sum: Spark's mean of decimals has four digits more than they have."""
    if is_window_function(node):  # OVER stands behind it.
        return exp.maybe_parse(f"avg(CAST({_text(node.this)} AS DOUBLE)){condition}", dialect=_SPARK)
    value = _text(node.this)
    return _parsed(f"CAST(sum({value}){condition} AS DOUBLE) / nullif(count({value}){condition}, 0)")


def _as_integer(node: exp.Cast) -> exp.Expr:
    """Spark cuts digits off; DuckDB rounds: decimals up, floating-point numbers to even."""
    value, kind = _text(node.this), node.to.sql(_SPARK)
    name = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    return _parsed(
        f"CASE WHEN typeof({value}) LIKE 'decimal%' THEN {name}(round({value}) AS {kind}) "
        f"WHEN typeof({value}) IN ('float', 'double') THEN {name}(bround({value}, 0) AS {kind}) "
        f"ELSE {name}({value} AS {kind}) END"
    )


def _as_text(node: exp.Cast) -> exp.Expr:
    value = _text(node.this)
    if node.this.is_string:
        return node
    refused = "raise_error('a floating-point number as text is not run by Spark, which writes it otherwise')"
    return _parsed(f"CASE WHEN typeof({value}) IN ('float', 'double') THEN {refused} ELSE {_text(node)} END")


def _unit_of(node: exp.Expr) -> str:
    unit = node.args.get("unit")
    return unit.name.upper() if isinstance(unit, exp.Var | exp.Literal) else ""


def _is_condition(value: exp.Expr) -> bool:
    return isinstance(value.unnest(), exp.Predicate | exp.Boolean | exp.Not | exp.Connector)


def _is_hashed(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.Anonymous) and node.parent.name.lower() == "hash"


def _is_integer(value: exp.Expr) -> str:
    return f"typeof({_text(value)}) IN ('tinyint', 'smallint', 'int', 'bigint')"


def _not_zero(value: exp.Expr) -> str:
    is_number = isinstance(value, exp.Literal) and not value.is_string and float(value.name) != 0
    return _text(value) if is_number else f"nullif({_text(value)}, 0)"


def _text(node: exp.Expr) -> str:
    """The node as Spark's SQL; the nodes in it are translated already."""
    return node.sql(_SPARK, identify=True)


def _parsed(sql: str) -> exp.Expr:
    return exp.paren(exp.maybe_parse(sql, dialect=_SPARK), copy=False)
