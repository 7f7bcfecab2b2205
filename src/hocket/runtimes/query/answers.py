"""Merged parts of a query, and the answers that they give, with intervals from replicates.

Units are dealt out to `REPLICATES` replicates. The spread of the answers that leave out one replicate each is the
uncertainty of the answer from all of them (the jackknife): it holds for any smooth expression of sums, as ratios are.
Skewed replicates widen an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

from hocket.runtimes.query.batch_sql import CollectedSql, SampledSql, part_names
from hocket.runtimes.query.engine import QueryEngine
from hocket.runtimes.query.intervals import half_width
from hocket.runtimes.query.prepared_layout import UNITS
from hocket.runtimes.query.query_state import STATE
from hocket.runtimes.query.student_t import quantile

REPLICATES = 16
_LEFT_OUT = "left_out"  # the column of the replicate without which something is; of none if it is -1
_SUPPORT = 12  # replicates that must have something of an aggregate; with fewer, their spread says too little


class AnswerTable(NamedTuple):
    """An answer, and the half widths of the intervals of its cells."""

    rows: list[tuple[Any, ...]]
    half_widths: list[tuple[float | None, ...]]


class SampledAnswers:
    """The answers of a query whose groups are estimated from part of their rows."""

    def __init__(self, engine: QueryEngine, sql: SampledSql) -> None:
        self._engine, self._db, self._sql = engine, engine.connection, sql
        self._names = part_names(sql.aggregates)
        self._groups = [f"g{n}" for n in range(sql.groups)]

    @property
    def bounded(self) -> tuple[int, ...]:
        """Columns that have intervals, by number."""
        return tuple(n for n, o in enumerate(self._sql.outputs) if o.has_interval)

    @property
    def unbounded(self) -> tuple[int, ...]:
        """Columns that are estimated without an interval, by number."""
        return tuple(n for n, o in enumerate(self._sql.outputs) if o.is_estimate and not o.has_interval)

    @property
    def continues_in_batches(self) -> bool:
        """Whether more batches follow the first: not if parts keep all values for what has no interval in the end."""
        return bool(self.bounded) or not any(aggregate.keeps_values for aggregate in self._sql.aggregates)

    def add(self, lo: int, hi: int) -> int:
        """Compute the batch of these units, and merge it; gives the rows that it adds to the state."""
        return self._engine.add_batch(STATE, self._sql.batch.of(lo, hi), is_first=lo == 0)

    def reads(self, table: str) -> bool:
        """Whether answers need a table that was computed once; batches may need it in any case."""
        return any(table in sql for sql in (self._sql.having, self._sql.tail, *(o.sql for o in self._sql.outputs)))

    def answer(self, done: int, confidence: float) -> AnswerTable:
        """The answer after so many units."""
        sql = self._sql
        count = len(sql.outputs)
        outputs = [f"{o.sql} AS c{n}" for n, o in enumerate(sql.outputs)]
        having = f" WHERE {sql.having}" if sql.having else ""
        with_interval = self.bounded if done < UNITS else ()
        if not with_interval:
            merged = self._merged(f"FROM {STATE}", self._groups, f"{UNITS / done!r}::DOUBLE", done == UNITS)
            plain = f"WITH e AS ({merged}) SELECT {', '.join(outputs)} FROM e{having} {sql.tail}"
            found = self._db.execute(plain).fetchall()
            return AnswerTable(found, [(None,) * count] * len(found))
        values = ", ".join(
            f"CASE WHEN {_LEFT_OUT} >= 0 THEN {_finite(sql.outputs[n].sql)} END AS v{n}" for n in with_interval
        )
        of_all = [f"any_value(a{n}) FILTER ({_LEFT_OUT} < 0) AS a{n}" for n in range(len(sql.aggregates))]
        # Without one replicate there may be no answer, as where a denominator is zero then.
        spreads = [
            f"CASE WHEN count(v{n}) = {REPLICATES} AND {self._is_supported(n)} THEN nullif(stddev_pop(v{n}), 0) END "
            f"AS h{n}, skewness(v{n}) AS k{n}"
            for n in with_interval
        ]
        group_by = f" GROUP BY {', '.join(self._groups)}" if self._groups else ""
        shown = ", ".join([*outputs, *(f"h{n}, k{n}" for n in with_interval)])
        rows = self._db.execute(
            f"WITH e AS ({self._with_replicates_left_out(done)}), v AS (SELECT *, {values} FROM e), "
            f"x AS (SELECT {', '.join([*self._groups, *of_all, *spreads])} FROM v{group_by}) "
            f"SELECT {shown} FROM x{having} {sql.tail}"
        ).fetchall()
        t = quantile((1 + confidence) / 2, REPLICATES - 1)
        scale = sqrt((REPLICATES - 1) * (1 - done / UNITS))
        place = {n: count + 2 * k for k, n in enumerate(with_interval)}

        def width(row: tuple[Any, ...], n: int) -> float | None:
            if n not in place or row[place[n]] is None:
                return None
            return half_width(scale * row[place[n]], row[place[n] + 1], t, REPLICATES)

        half_widths = [tuple(width(row, n) for n in range(count)) for row in rows]
        return AnswerTable([row[:count] for row in rows], half_widths)

    def _support(self) -> list[str]:
        """SQL of how many replicates each aggregate with intervals has something in."""
        return [
            # A bit for each replicate: DuckDB plans a join for every count(DISTINCT …).
            f"bit_count(bit_or(1::BIGINT << rep) FILTER ({names[0]} IS NOT NULL AND {names[0]}::DOUBLE <> 0)) AS s{n}"
            for n, (a, names) in enumerate(zip(self._sql.aggregates, self._names, strict=True))
            if a.has_interval
        ]

    def _is_supported(self, output: int) -> str:
        return " AND ".join(f"max(s{n}) >= {_SUPPORT}" for n in self._sql.outputs[output].aggregates)

    def _with_replicates_left_out(self, done: int) -> str:
        """SQL of all groups with their aggregates, without each replicate, and without none of them (-1)."""
        numbers = f"(SELECT unnest(range(-1, {REPLICATES})) AS {_LEFT_OUT})"
        # Without groups there is an answer if there are no rows, too.
        joined = "JOIN" if self._groups else "LEFT JOIN"
        of_all, of_others = (f"{weight!r}::DOUBLE" for weight in (UNITS / done, _weight_of_others(done)))
        return self._merged(
            f"FROM {numbers} {joined} {STATE} ON rep <> {_LEFT_OUT}", [*self._groups, _LEFT_OUT],
            f"CASE WHEN {_LEFT_OUT} < 0 THEN {of_all} ELSE {of_others} END", False, self._support(),
        )  # fmt: skip

    def _merged(self, read: str, by: list[str], weight: str, is_exact: bool, more: Sequence[str] = ()) -> str:
        """SQL of all groups with their aggregates."""
        merged = [
            (a.exact if is_exact else a.merge).format(*names, w=weight) + f" AS a{n}"
            for n, (a, names) in enumerate(zip(self._sql.aggregates, self._names, strict=True))
        ]
        group_by = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join([*by, *merged, *more])} {read}{group_by}"


class CollectedAnswers:
    """The answers of a query whose rows are final once they are computed."""

    bounded: tuple[int, ...] = ()
    continues_in_batches = True

    def __init__(self, engine: QueryEngine, sql: CollectedSql) -> None:
        self._engine, self._db, self._sql = engine, engine.connection, sql

    def add(self, lo: int, hi: int) -> int:
        """Compute the batch of these units, and keep its rows; gives how many."""
        return self._engine.add_batch(STATE, self._sql.batch.of(lo, hi), is_first=lo == 0)

    def reads(self, table: str) -> bool:
        """Whether answers need a table that was computed once; batches may need it in any case."""
        return table in self._sql.tail

    def answer(self, done: int, confidence: float) -> AnswerTable:  # noqa: ARG002 - they have no interval
        """The rows so far."""
        outputs = ", ".join(o.sql for o in self._sql.outputs)
        found = self._db.execute(f"{self._sql.select} {outputs} FROM {STATE} {self._sql.tail}").fetchall()
        count = len(self._sql.outputs)
        return AnswerTable(found, [(None,) * count] * len(found))


def _weight_of_others(done: int) -> float:
    """By which sums over all replicates but one are scaled up to all rows."""
    return UNITS * REPLICATES / (done * (REPLICATES - 1))


def _finite(sql: str) -> str:
    """SQL of a value as a number, or NULL."""
    return f"CASE WHEN isfinite(({sql})::DOUBLE) THEN ({sql})::DOUBLE END"
