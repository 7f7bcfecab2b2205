"""Rewrites a query: the SQL of a batch, and the SQL that makes an answer from the merged parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

from sqlglot import exp

from hocket.runtimes.query.aggregates import Parts, in_parts
from hocket.runtimes.query.blocks import (
    BLOCK,
    USE,
    Block,
    NotSplit,
    TableUse,
    is_window_function,
    own_expressions,
)  # fmt: skip
from hocket.runtimes.query.prepared_layout import UNIT, UNITS
from hocket.runtimes.query.split_key import Mode, Split
from hocket.runtimes.query.statement import DIALECT
from hocket.runtimes.query.whole_tables import UsedRows, used_rows

T = TypeVar("T", bound=exp.Expr)
FIRST, LAST = "hocket_first", "hocket_last"  # parameters: the units of a batch
_REPLICATE = "hocket replicate"  # a mark on the number of the replicate
_PARTS = "hocket parts"  # a mark on tables that have one part for each batch
_WHOLE = "hocket whole"  # a mark on tables that are read whole: their names


class UnitRows(NamedTuple):
    """Where the rows of a table are read, and which unit each is in."""

    relation: str  # SQL
    unit: str  # SQL
    parts: Mapping[int, tuple[str, str]] = {}  # end of a batch → schema and table that have its rows, if they are apart


UnitRowsOf = Callable[[str, str], UnitRows]  # of a table, by a column


class BatchSql:
    """What a batch computes, for any units."""

    def __init__(self, query: exp.Expr, used: Callable[[], Mapping[TableUse, UsedRows]] = dict) -> None:
        """`used` gives what is read in place of whole tables after the first batch."""
        self._query, self._used = query, used
        self._bounds: dict[str, list[exp.Expr]] = {
            name: [p for p in query.find_all(exp.Placeholder) if p.name == name] for name in (FIRST, LAST)
        }
        self._parts = [table for table in query.find_all(exp.Table) if _PARTS in table.meta]
        self._whole = [table for table in query.find_all(exp.Table) if _WHOLE in table.meta]
        self._replicate = next((node for node in query.find_all(exp.Mod) if _REPLICATE in node.meta), None)

    def of(self, first: int, last: int) -> str:
        """SQL of the batch of these units, both included."""
        # Numbers in the text, not parameters of a prepared statement: DuckDB plans with what it knows.
        for name, unit in ((FIRST, first), (LAST, last)):
            self._bounds[name] = [b.replace(exp.Literal.number(unit)) for b in self._bounds[name]]
        for table in self._parts:
            schema, name = table.meta[_PARTS][last + 1]
            table.set("db", exp.to_identifier(schema))
            table.set("this", exp.to_identifier(name, quoted=True))
        for table in self._whole:
            used = self._used().get(table.meta[USE]) if first else None
            table.set("this", exp.to_identifier(used.name if used else table.meta[_WHOLE], quoted=True))
        if self._replicate is None or last + 1 != UNITS:
            return self._query.sql(DIALECT)
        without = self._replicate.replace(exp.Literal.number(0))  # The answer will be exact: there is no interval.
        sql = self._query.sql(DIALECT)
        without.replace(self._replicate)
        return sql


class OutputColumn(NamedTuple):
    """A column of the answer."""

    name: str
    sql: str  # over the columns of the merged parts
    has_interval: bool
    is_estimate: bool  # of all rows, from part of them
    aggregates: tuple[int, ...] = ()  # those in it, by number


class SampledSql(NamedTuple):
    """A query whose groups are estimated from part of their rows."""

    batch: BatchSql  # gives the columns g…, rep and p…
    groups: int
    aggregates: tuple[Parts, ...]
    outputs: tuple[OutputColumn, ...]
    having: str  # over the columns of the merged parts; empty if there is none
    tail: str  # QUALIFY, ORDER BY, LIMIT


class CollectedSql(NamedTuple):
    """A query whose rows, once there, are final."""

    batch: BatchSql
    outputs: tuple[OutputColumn, ...]
    select: str  # SELECT or SELECT DISTINCT
    tail: str


def part_names(aggregates: tuple[Parts, ...]) -> list[list[str]]:
    """The columns of each aggregate's parts."""
    numbers = iter(range(sum(len(a.parts) for a in aggregates)))
    return [[f"p{next(numbers)}" for _ in a.parts] for a in aggregates]


class Rewriting:
    """Makes the SQL of a split query."""

    def __init__(
        self, top: Block, split: Split, unit_rows: UnitRowsOf, rows: Callable[[str], float] = lambda _table: 0.0
    ) -> None:
        """`rows` says how many a table has. Raises NotSplit."""
        self._top, self._split, self._unit_rows, self._rows = top, split, unit_rows, rows
        self._columns = split.columns
        self._blocks = {block.number: block for block in top.all_blocks()}
        once = {once_name(block): block for block in _unsplit(top, self._columns)}
        _require_other_blocks(top, list(once.values()), self._columns)
        # What all batches read, by name: blocks that are the same in every one,
        self.once = {name: block.select.sql(DIALECT) for name, block in once.items()}

    @cached_property
    def used(self) -> dict[TableUse, UsedRows]:
        """What batches after the first one read in place of whole tables.

        To find it may take longer than the first answer, for which the tables are read as they are.
        """
        return used_rows(self._top, self._columns, self._rows)

    def sampled(self, reps: int) -> SampledSql:
        """The SQL for groups whose rows are in many buckets, with `reps` replicates of each group. Raises NotSplit."""
        top = self._top
        groups, select = top.group_by, top.select
        if select.args.get("distinct") is not None:
            raise NotSplit("DISTINCT over groups is not estimated")
        if select.args.get("windows"):
            raise NotSplit("a WINDOW clause is not looked at in answers")
        order = _order_by_columns(select)
        after = [*select.expressions, *(select.args[k] for k in ("having", "qualify") if select.args.get(k))]
        after += list(order.expressions) if order is not None else []
        nodes: list[exp.Expr] = []
        for item in after:
            nodes += [node for node in _aggregates(item) if node not in nodes]
        parts = tuple(in_parts(node, top, self._split.key) for node in nodes)
        if any(block.is_correlated for block in self._blocks_after_grouping(after)):
            raise NotSplit("a block after grouping refers to its groups")

        def over_parts(expression: exp.Expr) -> str:
            def replaced(node: exp.Expr) -> exp.Expr:
                if node in groups:
                    return exp.column(f"g{groups.index(node)}")
                if node in nodes and not is_window_function(node):
                    return exp.column(f"a{nodes.index(node)}")
                return node

            return self._with_once(expression.copy()).transform(replaced, copy=False).sql(DIALECT)

        outputs = []
        for item in select.expressions:
            used = list(_aggregates(item))
            is_numeric = bool(used) and not list(own_expressions(item, exp.Window))
            has_interval = is_numeric and all(parts[nodes.index(node)].has_interval for node in used)
            numbers = tuple(dict.fromkeys(nodes.index(node) for node in used))
            outputs.append(
                OutputColumn(item.alias_or_name, over_parts(item.unalias()), has_interval, bool(used), numbers)
            )
        aliases = {o.name: o.sql for o in outputs}
        tail = []
        if (qualify := select.args.get("qualify")) is not None:
            tail.append(f"QUALIFY {over_parts(qualify.this)}")
        if order is not None:
            tail.append("ORDER BY " + ", ".join(_ordered(o, over_parts, aliases) for o in order.expressions))
        tail += [select.args[k].sql(DIALECT).strip() for k in ("limit", "offset") if select.args.get(k)]
        having = select.args.get("having")
        names = part_names(parts)
        columns = [exp.alias_(g.copy(), f"g{n}") for n, g in enumerate(groups)]
        rep: exp.Expr = exp.Literal.number(0)  # Nothing is told apart that is not needed: groups would be many.
        if any(output.has_interval for output in outputs):
            rep = exp.Mod(this=self._unit(top), expression=exp.Literal.number(reps))
            rep.meta[_REPLICATE] = True
        columns += [exp.alias_(rep, "rep")]
        columns += [
            exp.alias_(_parsed(sql), name)
            for a, named in zip(parts, names, strict=True)
            for sql, name in zip(a.parts, named, strict=True)
        ]
        batch = self._marked_copy()
        for clause in ("having", "qualify", "order", "limit", "offset"):
            batch.set(clause, None)
        batch.set("expressions", columns)
        batch.set("group", exp.Group(expressions=[exp.Literal.number(n + 1) for n in range(len(groups) + 1)]))
        return SampledSql(
            BatchSql(batch, lambda: self.used), len(groups), parts, tuple(outputs),
            over_parts(having.this) if having else "", " ".join(tail),
        )  # fmt: skip

    def _blocks_after_grouping(self, after: list[exp.Expr]) -> list[Block]:
        return [self._blocks[q.meta[BLOCK]] for item in after for q in item.find_all(exp.Select) if BLOCK in q.meta]

    def _unit(self, block: Block) -> exp.Expr:
        """The hash class of a row of a block."""
        split = [alias for alias, use in block.tables.items() if use in self._columns]
        split += [a for a, inner in block.derived.items() if any(use in self._columns for use in inner.uses())]
        named = [alias for alias in split if alias not in block.semi_joined]
        units = [exp.column(UNIT, exp.to_identifier(alias, quoted=True)) for alias in named]
        # In an outer join one of them may be NULL.
        return units[0] if len(units) == 1 else exp.Coalesce(this=units[0], expressions=units[1:])

    def _with_once(self, root: T) -> T:
        """Blocks that are the same in every batch are read from where they were computed once."""
        for inner in list(root.find_all(exp.Select)):
            name = once_name(self._blocks[inner.meta[BLOCK]]) if BLOCK in inner.meta else ""
            if name in self.once:
                inner.replace(_parsed(f"SELECT * FROM {name}"))
        return root

    def _marked_copy(self) -> exp.Select:
        """The query with split tables restricted to the units of a batch, and units shown by blocks in FROM."""
        top = self._with_once(self._top.select.copy())
        for inner in list(top.find_all(exp.Select)):
            block = self._blocks.get(inner.meta.get(BLOCK, -1))
            if block is None or not block.is_derived:
                continue
            if any(use in self._columns for use in (*block.tables.values(), *_derived_uses(block))):
                unit = self._unit(block)
                inner.set("expressions", [*inner.expressions, exp.alias_(unit, UNIT)])
                if block.aggregates:
                    inner.args["group"].append("expressions", unit.copy())
        for table in list(top.find_all(exp.Table)):
            use = table.meta.get(USE)
            if use in self._columns:
                table.replace(self._rows_of_batch(use))
            elif use is not None:
                table.meta[_WHOLE] = table.name
        return top

    def _rows_of_batch(self, use: TableUse) -> exp.Expr:
        """In place of a table: its rows in the units of a batch."""
        rows = self._unit_rows(use.table, self._columns[use])
        alias = exp.TableAlias(this=exp.to_identifier(use.alias, quoted=True))
        if rows.parts:  # Whole tables, not ranges of one: DuckDB knows how many rows they have, and joins accordingly.
            part = exp.Table(this=exp.to_identifier(use.table, quoted=True), alias=alias)
            part.meta[_PARTS] = rows.parts
            return part
        shown, within = f"*, {rows.unit} AS {UNIT}", f"{rows.unit} BETWEEN ${FIRST} AND ${LAST}"
        return exp.Subquery(this=_parsed(f"SELECT {shown} FROM {rows.relation} WHERE {within}"), alias=alias)

    def collected(self) -> CollectedSql:
        """The SQL for rows, or groups, that are in one bucket each. Raises NotSplit."""
        top, select = self._top, self._marked_copy()
        if self._split.mode is Mode.GROUPS and top.windows:
            raise NotSplit("a window goes over groups of several buckets")
        order, tail = _order_by_columns(select), []
        if order is not None:
            select.set("order", None)
        names = [f"c{n}" for n in range(len(select.expressions))]
        named = {item.alias_or_name: name for item, name in zip(select.expressions, names, strict=True)}
        items = [item.unalias() for item in select.expressions]
        columns = [exp.alias_(item, name) for item, name in zip(items, names, strict=True)]
        if order is not None:
            by: list[str] = []
            for ordered in order.expressions:
                is_output = isinstance(ordered.this, exp.Column) and not ordered.this.table
                name = named.get(ordered.this.name) if is_output else None
                if name is None:
                    name = next((n for item, n in zip(items, names, strict=True) if item == ordered.this), None)
                if name is None:
                    name = f"o{len(by)}"
                    columns.append(exp.alias_(ordered.this.copy(), name))
                again = ordered.copy()
                again.set("this", exp.column(name))
                by.append(again.sql(DIALECT))
            tail.append(f"ORDER BY {', '.join(by)}")
        for kind in ("limit", "offset"):
            if (limit := select.args.get(kind)) is not None:
                tail.append(limit.sql(DIALECT).strip())
                limit.pop()
        is_distinct = select.args.get("distinct") is not None
        is_final = [not list(_aggregates(item)) for item in top.select.expressions]
        select.set("expressions", columns)
        outputs = tuple(
            OutputColumn(item.alias_or_name, name, False, not final)
            for item, name, final in zip(top.select.expressions, names, is_final, strict=True)
        )
        return CollectedSql(
            BatchSql(select, lambda: self.used), outputs, "SELECT DISTINCT" if is_distinct else "SELECT",
            " ".join(tail),
        )  # fmt: skip


def once_name(block: Block) -> str:
    """The table of a block that is computed once."""
    return f"hocket_once_{block.number}"


def _unsplit(block: Block, columns: Collection[TableUse]) -> Iterator[Block]:
    """The outermost blocks that are the same in every batch."""
    for inner in (*block.derived.values(), *block.nested):
        if inner.is_correlated or any(use in columns for use in inner.uses()):
            yield from _unsplit(inner, columns)
        else:
            yield inner


def _require_other_blocks(top: Block, once: list[Block], columns: Collection[TableUse]) -> None:
    """Rows that are needed in full before the first batch are not computed again in batches: DuckDB does it once.

    They are those of a CTE, or of a join that a block in an expression repeats.
    """
    within = [inner for block in once for inner in block.all_blocks()]
    split = [block for block in top.all_blocks() if any(use in columns for use in block.tables.values())]
    inner_split = [block for block in split if block is not top]  # It has all others in it, and is none of them.
    whole = [inner.select for inner in within if inner.tables]
    joined = {_rows_sql(inner) for inner in within if len(inner.tables) > 1}
    if any(block.select in whole for block in inner_split) or (
        joined and any(_rows_sql(block) in joined for block in split)
    ):
        raise NotSplit("a block that is split is needed in full before the first batch")


def _rows_sql(block: Block) -> str:
    """The FROM and WHERE of a block, whatever it shows of them."""
    clauses = (block.select.args.get(kind) for kind in ("from_", "where"))
    joins = block.select.args.get("joins") or ()
    return " ".join(clause.sql(DIALECT) for clause in (*clauses, *joins) if clause is not None)


def _derived_uses(block: Block) -> list[TableUse]:
    return [use for inner in block.derived.values() for use in inner.uses()]


def _aggregates(item: exp.Expr) -> list[exp.Expr]:
    """The aggregates over groups in an expression, each with its FILTER."""
    found = []
    for node in own_expressions(item, exp.AggFunc):
        outer = node.parent if isinstance(node.parent, exp.Filter) else node
        if not is_window_function(outer):
            found.append(outer)
    return found


def _order_by_columns(select: exp.Select) -> exp.Order | None:
    """The ORDER BY of a block, with what is shown in place of its names in expressions, as in `ORDER BY -total`."""
    found = select.args.get("order")
    if found is None:
        return None
    shown = {item.alias_or_name: item.unalias() for item in select.expressions}

    def replaced(node: exp.Expr) -> exp.Expr:
        is_name = isinstance(node, exp.Column) and not node.table and not isinstance(node.parent, exp.Ordered)
        return exp.paren(shown[node.name].copy()) if is_name and node.name in shown else node

    order = found.copy()
    order.set("expressions", [ordered.transform(replaced) for ordered in order.expressions])
    assert isinstance(order, exp.Order)
    return order


def _ordered(ordered: exp.Ordered, over_parts: Callable[[exp.Expr], str], aliases: dict[str, str]) -> str:
    again = ordered.copy()
    this = ordered.this
    is_output = isinstance(this, exp.Column) and not this.table and this.name in aliases
    again.set("this", _parsed(aliases[this.name] if is_output else over_parts(this)))
    return again.sql(DIALECT)


def _parsed(sql: str) -> exp.Expr:
    return exp.maybe_parse(sql, dialect=DIALECT)
