"""Finds the key by which a query can be split, so that the data of one bucket of its hash gives a part of the result.

A table at some place of a query is *split* if it has a column of the key there: a batch reads the rows of its buckets.
Otherwise it is read *whole* in every batch. The split is right if no row of a bucket has to see a row of another one:

- the split tables of a block are joined by the key, so that each joined row belongs to one bucket;
- a block in an expression (EXISTS, IN, scalar) that reads split tables is tied to the key of the block around it;
- a block in FROM that combines rows (GROUP BY, DISTINCT, windows) combines only rows of one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import NamedTuple, Protocol

from sqlglot import exp

from hocket.runtimes.query.blocks import (
    ROWS,
    Block,
    Equality,
    NotSplit,
    TableUse,
    UsedColumn,
    equal_columns,
)

LEAST_VALUES = 5_000  # of a key, so that buckets are about equal
MANY_GROUPS = 20_000
LARGEST_SHARE = 1 / 512  # of the rows that one value of a key may have: as many as two average units
LEAST_SPLIT = 0.1  # of the rows that another key splits: with less, batches of complete groups are no smaller than all


class Mode(Enum):
    """What the batches of a query give."""

    SAMPLED = "sampled"  # sums over part of the rows of each group, which are scaled up, with intervals
    GROUPS = "groups"  # groups that are complete, but not yet all of them
    ROWS = "rows"  # rows that are final, but not yet all of them


class Split(NamedTuple):
    """How a query is split."""

    key: tuple[UsedColumn, ...]  # equal columns, each of another use of a table
    mode: Mode
    whole: tuple[TableUse, ...]

    @property
    def columns(self) -> dict[TableUse, str]:
        """The split uses, each with its column of the key."""
        return {column.use: column.column for column in self.key}

    def __str__(self) -> str:
        names = " = ".join(sorted({f"rows of {k.use.table}" if k.column == ROWS else str(k) for k in self.key}))
        whole = ", ".join(dict.fromkeys(use.table for use in self.whole))
        return f"by {names}{f'; {whole} read whole' if whole else ''}"


class Statistics(Protocol):
    """What is known of the tables."""

    def rows(self, table: str) -> float:
        """How many rows it has."""

    def distinct(self, table: str, column: str) -> float:
        """About how many values a column has."""

    def largest_share(self, table: str, column: str) -> float:
        """The part of the rows that the most frequent value of a column has, NULL being one."""

    def hash_kind(self, table: str, column: str) -> str:
        """Equal values of columns of one kind have equal hashes."""

    def stored_keys(self, table: str) -> tuple[str, ...]:
        """Columns by whose hash the rows of the table are laid out."""


def find_split(top: Block, statistics: Statistics) -> Split:
    """The split that scans the fewest rows again in every batch. Raises NotSplit with the reasons against each."""
    uses = list(top.uses())
    if not uses:
        raise NotSplit("it reads no table")
    against: dict[str, str] = {}
    found: list[Split] = []
    for key in _candidates(top, uses, statistics):
        try:
            _require_one_kind(key, statistics)
            found.append(_checked(top, key, uses))
        except NotSplit as reason:
            against.setdefault(_name(key), str(reason))

    # What is to be known of the data may take longer than the query: it is asked for the best keys only.
    @cache
    def is_possible(number: int) -> bool:
        try:
            _require_many_values(found[number].key, statistics)
        except NotSplit as reason:
            against.setdefault(_name(found[number].key), str(reason))
            return False
        return True

    rows = [sum(statistics.rows(use.table) for use in split.columns) for split in found]
    numbers = range(len(found))
    grouped = filter(None, map(top.resolved, top.group_by))
    has_many_groups = any(statistics.distinct(g.use.table, g.column) > MANY_GROUPS for g in grouped)
    by_rows = sorted(numbers, key=rows.__getitem__, reverse=True)
    most = next((rows[n] for n in by_rows if is_possible(n)), 0.0) if has_many_groups else 0.0

    def preferred(number: int) -> tuple[bool, float, float, bool]:
        # Of many small groups, a part of the rows says little: better some of the groups, complete, unless nearly all
        # would be read whole in every batch for them.
        split = found[number]
        is_good = not has_many_groups or (split.mode is not Mode.SAMPLED and rows[number] >= LEAST_SPLIT * most)
        stored = sum(
            statistics.rows(use.table) for use, column in split.key if column in statistics.stored_keys(use.table)
        )  # read once, by the batches together
        return is_good, stored, rows[number], split.key[0].column != ROWS

    for number in sorted(numbers, key=preferred, reverse=True):
        if is_possible(number):
            return found[number]
    raise NotSplit("; ".join(f"{name}: {reason}" for name, reason in list(against.items())[:5]))


def _name(key: tuple[UsedColumn, ...]) -> str:
    return " = ".join(dict.fromkeys(map(str, key)))


def _require_many_values(key: tuple[UsedColumn, ...], statistics: Statistics) -> None:
    for use, column in key:
        if column == ROWS:
            # Rows that are alike are in one bucket, where they have no numbers.
            share, rows = statistics.largest_share(use.table, ROWS), statistics.rows(use.table)
            if share > max(LARGEST_SHARE, 8 / max(rows, 1.0)):
                raise NotSplit(f"{share:.1%} of the rows of {use.table} are alike, too many for one bucket")
            continue
        values, least = statistics.distinct(use.table, column), min(LEAST_VALUES, statistics.rows(use.table) / 10)
        if values < least:  # A small table has few of everything.
            raise NotSplit(f"{use.table}.{column} has about {values:,.0f} values, too few to be split by")
        share = statistics.largest_share(use.table, column)
        # Whether their bucket is among those that were read would make all the difference, and no interval could tell.
        if share > max(LARGEST_SHARE, 8 / max(values, 1.0)):
            raise NotSplit(f"one value of {use.table}.{column} has {share:.1%} of the rows, too many for one bucket")


def _require_one_kind(key: tuple[UsedColumn, ...], statistics: Statistics) -> None:
    kinds = {statistics.hash_kind(use.table, column): str(UsedColumn(use, column)) for use, column in key}
    if "" in kinds and all(column != ROWS for _use, column in key):
        raise NotSplit(f"{kinds['']} may have a collation: equal values have other hashes")
    if len(kinds) > 1:
        said = " and ".join(f"{column} is {kind}" for kind, column in list(kinds.items())[:2])
        raise NotSplit(f"{said}: equal values have other hashes")


def _candidates(top: Block, uses: list[TableUse], statistics: Statistics) -> Iterator[tuple[UsedColumn, ...]]:
    for columns in equal_columns(pair for block in top.all_blocks() for pair in block.equalities):
        by_use: dict[TableUse, UsedColumn] = {}
        # Of several equal columns of a table any will do, best one that it is laid out by.
        for column in sorted(columns, key=lambda c: (c.column not in statistics.stored_keys(c.use.table), c)):
            by_use.setdefault(column.use, column)
        yield tuple(by_use.values())
    for block in top.all_blocks():  # A group that is complete needs no other table to be split.
        partitions = [by for window in block.windows for by in _partition(window)]
        for column in filter(None, map(block.resolved, (*block.group_by, *partitions))):
            yield (column,)
    for use in uses:
        for stored in statistics.stored_keys(use.table):  # Any order of the rows that does not depend on them will do.
            yield (UsedColumn(use, stored),)
        yield (UsedColumn(use, ROWS),)


# -- checks of a split --------------------------------------------------------------------------------------------


def _checked(top: Block, key: tuple[UsedColumn, ...], uses: list[TableUse]) -> Split:
    columns = {column.use: column for column in key}
    if not _split_part(top, columns).is_split:
        raise NotSplit("no table of the outermost block is split by it")
    if _is_distinct_on(top):
        raise NotSplit("DISTINCT ON looks at rows of several keys")
    if top.aggregates:
        grouped = any(top.in_every_row(g) in key for g in top.group_by)
        mode = Mode.GROUPS if grouped else Mode.SAMPLED
    else:
        mode = Mode.ROWS
        _require_windows_by_key(top, columns)
    return Split(key, mode, tuple(use for use in uses if use not in columns))


class _Part(NamedTuple):
    is_split: bool
    key: UsedColumn | None = None  # that its rows show; None if they do not


def _split_part(block: Block, columns: dict[TableUse, UsedColumn]) -> _Part:
    """Whether the rows of a block are split, by which column. Raises NotSplit if they cannot be."""
    parts: dict[str, _Part] = {alias: _Part(use in columns, columns.get(use)) for alias, use in block.tables.items()}
    for alias, inner in block.derived.items():
        parts[alias] = _split_part(inner, columns)
        if parts[alias].is_split:
            parts[alias] = _Part(True, _combined(inner, columns, parts[alias]))
    split = {alias: part for alias, part in parts.items() if part.is_split}
    if len(split) > 1 and any(part.key is None for part in split.values()):
        raise NotSplit("a block in FROM does not show the key by which it is joined")
    keys = [part.key for part in split.values() if part.key is not None]
    _require_joined(keys, block)
    _require_outer_joins(block, split)
    for inner in block.nested:
        part = _split_part(inner, columns)
        if part.is_split:
            around = keys or list(_keys_around(block, columns))
            if part.key is None or not around:
                raise NotSplit("a block in an expression is not tied to the key")
            _require_joined([part.key, around[0]], inner)
            own = equal_columns(inner.equalities)
            if not any(part.key in equal and not equal.isdisjoint(around) for equal in own):
                _combined(inner, columns, part)  # It is not of a row around it, but the same for all rows.
    return _Part(bool(split), keys[0] if keys else None)


def _keys_around(block: Block, columns: dict[TableUse, UsedColumn]) -> Iterator[UsedColumn]:
    while block.parent is not None and not block.is_derived:
        block = block.parent
        yield from (columns[use] for use in block.tables.values() if use in columns)


def _combined(block: Block, columns: dict[TableUse, UsedColumn], part: _Part) -> UsedColumn | None:
    """The key that the rows of a split block in FROM show, which must not combine rows of several keys."""
    select = block.select
    if select.args.get("limit") is not None or select.args.get("offset") is not None:
        raise NotSplit("LIMIT within it would be of each bucket")
    key = set(columns.values())
    if block.aggregates and not any(block.in_every_row(g) in key for g in block.group_by):
        raise NotSplit("a block in FROM combines rows of several keys")
    shown = [
        found for item in select.expressions if (found := block.output(item.alias_or_name)) is not None and found in key
    ]
    if select.args.get("distinct") is not None and (not shown or _is_distinct_on(block)):
        raise NotSplit("DISTINCT in a block in FROM combines rows of several keys")
    if not block.aggregates or part.key is not None:
        _require_windows_by_key(block, columns)
    return shown[0] if shown else None


def _require_windows_by_key(block: Block, columns: dict[TableUse, UsedColumn]) -> None:
    key = set(columns.values())
    for window in block.windows:
        if not any(block.in_every_row(by) in key for by in _partition(window)):
            raise NotSplit("a window goes over rows of several keys")


def _partition(window: exp.Expr) -> list[exp.Expr]:
    """What its PARTITION BY says; nothing if that stands in a WINDOW clause."""
    return window.args.get("partition_by") or []


def _is_distinct_on(block: Block) -> bool:
    distinct = block.select.args.get("distinct")
    return distinct is not None and distinct.args.get("on") is not None


def _require_joined(keys: list[UsedColumn], block: Block) -> None:
    if len(set(keys)) > 1 and not any(set(keys) <= columns for columns in equal_columns(_known_equalities(block))):
        raise NotSplit("tables of one block are not joined by it")


def _known_equalities(block: Block) -> Iterator[Equality]:
    """Equal columns in this block, in blocks of its FROM, and in those around it that it may refer to."""
    yield from block.equalities
    for inner in block.derived.values():
        yield from _derived_equalities(inner)
    while block.parent is not None and not block.is_derived:
        block = block.parent
        yield from block.equalities
        for inner in block.derived.values():
            yield from _derived_equalities(inner)


def _derived_equalities(block: Block) -> Iterator[Equality]:
    yield from block.equalities
    for inner in block.derived.values():
        yield from _derived_equalities(inner)


def _require_outer_joins(block: Block, split: Mapping[str, _Part]) -> None:
    """Where rows without a partner are kept, the kept side must be split with the other one."""
    from_ = block.select.args.get("from_")
    before = {from_.this.alias_or_name} if from_ is not None else set()
    for join in block.select.args.get("joins") or ():
        alias, side, kind = join.this.alias_or_name, (join.side or "").upper(), (join.kind or "").upper()
        if join.method or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
            raise NotSplit(f"{join.method or kind} JOIN is not split")
        right, left = alias in split, any(other in split for other in before)
        is_left = side == "LEFT" or kind in ("SEMI", "ANTI")
        if (is_left and right and not left) or (side == "RIGHT" and left and not right):
            raise NotSplit(f"{side or kind} JOIN would find a row without a partner in each bucket")
        if side == "FULL" and left != right:
            raise NotSplit("FULL JOIN would find rows without a partner in each bucket")
        before.add(alias)
