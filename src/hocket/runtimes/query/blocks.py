"""The blocks of a query (SELECTs within SELECTs), the tables in them, and which of their columns are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from hocket.runtimes.query.statement import DIALECT


class TableUse(NamedTuple):
    """A table at one place of a query; the same table elsewhere is another use."""

    block: int
    alias: str
    table: str


class UsedColumn(NamedTuple):
    """A column of a table at one place."""

    use: TableUse
    column: str

    def __str__(self) -> str:
        return f"{self.use.table}.{self.column}"


ROWS = "rowid"  # the key of a table that is split by its rows, whatever they are; a column of this name is no key
USE, BLOCK = "hocket use", "hocket block"  # marks on the nodes of the query, which copies of it keep
Equality = tuple[UsedColumn, UsedColumn]


class Block:
    """One SELECT, the blocks in its FROM, and those in its expressions. The SELECT stays as it is."""

    def __init__(self, scope: Scope, number: Iterator[int], parent: Block | None, is_derived: bool) -> None:
        if not isinstance(scope.expression, exp.Select):
            raise NotSplit(f"{scope.expression.key.upper()} is not split")
        self.select: exp.Select = scope.expression
        self.number, self.parent, self.is_derived = next(number), parent, is_derived
        self.tables: dict[str, TableUse] = {}
        self.derived: dict[str, Block] = {}
        self.is_correlated = bool(scope.external_columns)
        self.select.meta[BLOCK] = self.number
        _require_plain_from(self.select)
        for alias, source in scope.sources.items():
            if isinstance(source, exp.Table):
                self.tables[alias] = TableUse(self.number, alias, source.name)
                source.meta[USE] = self.tables[alias]
            elif source in scope.derived_table_scopes:
                self.derived[alias] = Block(source, number, self, True)
            elif alias in {lateral.alias_or_name for lateral in self.select.args.get("laterals") or ()} or any(
                isinstance(join.this, exp.Lateral) for join in self.select.args.get("joins") or ()
            ):
                raise NotSplit("LATERAL is not split")
            elif parent is None:
                raise NotSplit(f"'{alias}' in FROM is no table")
        self.nested = [Block(inner, number, self, False) for inner in scope.subquery_scopes]

    @cached_property
    def aggregates(self) -> bool:
        """Whether it combines rows."""
        return bool(self.select.args.get("group")) or any(
            not is_window_function(node)
            for item in self._after_grouping()
            for node in own_expressions(item, exp.AggFunc)
        )

    def _after_grouping(self) -> list[exp.Expr]:
        having = self.select.args.get("having")
        return [*self.select.expressions, *([having] if having is not None else [])]

    @cached_property
    def group_by(self) -> list[exp.Expr]:
        """What it groups by."""
        group = self.select.args.get("group")
        if group is None:
            return []
        if next(group.find_all(exp.Cube, exp.Rollup, exp.GroupingSets), None) is not None:
            raise NotSplit("CUBE, ROLLUP and GROUPING SETS are not split")
        return list(group.expressions)

    @cached_property
    def windows(self) -> list[exp.Expr]:
        """Its windows, not those of blocks within."""
        return list(own_expressions(self.select, exp.Window))

    def all_blocks(self) -> Iterator[Block]:
        """This one and all within it."""
        yield self
        for inner in (*self.derived.values(), *self.nested):
            yield from inner.all_blocks()

    def uses(self) -> Iterator[TableUse]:
        """The tables of this block and of all within it."""
        for block in self.all_blocks():
            yield from block.tables.values()

    def resolved(self, expression: exp.Expr | None) -> UsedColumn | None:
        """The column of a table that an expression is in every row; None if it is computed, or of several rows."""
        expression = expression.unalias() if expression is not None else None
        while isinstance(expression, exp.Paren):
            expression = expression.this
        if not isinstance(expression, exp.Column):
            return None
        alias, name = expression.table, expression.name
        if alias in self.tables:
            return UsedColumn(self.tables[alias], name) if name != ROWS else None
        if alias in self.derived:
            return self.derived[alias].output(name)
        return self.parent.resolved(expression) if self.parent is not None and not self.is_derived else None

    @cached_property
    def nullable(self) -> set[str]:
        """Tables and blocks in FROM of which an outer join gives NULL to rows without a partner."""
        from_, found = self.select.args.get("from_"), set[str]()
        before = {from_.this.alias_or_name} if from_ is not None else set()
        for join in self.select.args.get("joins") or ():
            alias, side = join.this.alias_or_name, (join.side or "").upper()
            found |= {alias} if side in ("LEFT", "FULL") else set()
            found |= before if side in ("RIGHT", "FULL") else set()
            before.add(alias)
        return found

    @cached_property
    def semi_joined(self) -> set[str]:
        """Tables and blocks in FROM that are joined by SEMI or ANTI JOIN, so that their columns cannot be named."""
        joins = self.select.args.get("joins") or ()
        return {join.this.alias_or_name for join in joins if (join.kind or "").upper() in ("SEMI", "ANTI")}

    def in_every_row(self, expression: exp.Expr | None) -> UsedColumn | None:
        """As `resolved`, unless an outer join may make it NULL: rows without a match may come from any bucket."""
        found = self.resolved(expression)
        column = expression.unalias() if expression is not None else None
        return None if isinstance(column, exp.Column) and column.table in self.nullable else found

    def output(self, name: str) -> UsedColumn | None:
        """What a column of its result is, if each of its rows comes from rows that have one value of it."""
        for item in self.select.expressions:
            if item.alias_or_name == name:
                found = self.in_every_row(item)
                if found is None or (self.aggregates and found not in [self.in_every_row(g) for g in self.group_by]):
                    return None
                return found
        return None

    @cached_property
    def equalities(self) -> list[Equality]:
        """Pairs of columns that are equal in every row of this block, by its own conditions."""
        found: list[Equality] = []
        for condition in self.conditions():
            pair: tuple[UsedColumn | None, UsedColumn | None] = (None, None)
            if isinstance(condition, exp.EQ):
                pair = self.resolved(condition.left), self.resolved(condition.right)
            elif isinstance(condition, exp.In) and (query := condition.args.get("query")) is not None:
                inner = next((b for b in self.nested if b.select is query.unnest()), None)
                if inner is not None and len(inner.select.expressions) == 1:
                    pair = self.resolved(condition.this), inner.output(inner.select.expressions[0].alias_or_name)
            first, second = pair
            if first is not None and second is not None and first != second:
                found.append((first, second))
        return found

    def conditions(self) -> Iterator[exp.Expr]:
        """The conditions of WHERE and ON, one at a time."""
        where = self.select.args.get("where")
        conditions = [where.this] if where is not None else []
        # In an outer join they hold for rows with a partner; the others have NULL there, in whatever bucket they are.
        conditions += [on for join in self.select.args.get("joins") or () if (on := join.args.get("on")) is not None]
        for condition in conditions:
            yield from condition.flatten() if isinstance(condition, exp.And) else (condition,)


class NotSplit(Exception):
    """Why a query is not run in batches."""


def blocks_of(select: exp.Select) -> Block:
    """The outermost block. Raises NotSplit."""
    scope = build_scope(select)
    assert scope is not None
    return Block(scope, iter(range(10_000)), None, False)


def _require_plain_from(select: exp.Select) -> None:
    """Tables and blocks are replaced by their rows of a batch: what is said of them beside a name would be lost."""
    if select.args.get("sample") is not None:
        raise NotSplit("a sample would be taken of each batch")
    from_ = select.args.get("from_")
    sources = [*([from_.this] if from_ is not None else []), *(j.this for j in select.args.get("joins") or ())]
    for source in sources:
        is_renamed = isinstance(source, exp.Table) and source.alias_column_names
        is_join = isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table)
        more = any(source.args.get(kind) for kind in ("joins", "laterals", "pivots", "sample", "version", "when"))
        if is_renamed or is_join or more:
            raise NotSplit(f"{source.sql(DIALECT)[:60]} in FROM is not split")


def is_window_function(node: exp.Expr) -> bool:
    """Whether it is computed over a window, so that rows stay what they are."""
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def own_expressions(root: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Expressions of that kind, not those of blocks within."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            yield node
        for child in node.iter_expressions():
            if not isinstance(child, exp.Query):
                stack.append(child)


def equal_columns(pairs: Iterable[Equality]) -> list[set[UsedColumn]]:
    """Columns that are equal to each other, through others too."""
    classes: list[set[UsedColumn]] = []
    for pair in pairs:
        joined = set(pair)
        apart = []
        for known in classes:
            if known & joined:
                joined |= known
            else:
                apart.append(known)
        classes = [*apart, joined]
    return classes
