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

    def add(self, lo: int, hi: int) -> None:
        """Compute the batch of these units, and merge it."""
        self._engine.add_batch(STATE, self._sql.batch.of(lo, hi), is_first=lo == 0)

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
        estimates = self._merged("", UNITS / done, done == UNITS, self._support() if with_interval else ())
        if not with_interval:
            plain = f"WITH e AS ({estimates}) SELECT {', '.join(outputs)} FROM e{having} {sql.tail}"
            found = self._db.execute(plain).fetchall()
            return AnswerTable(found, [(None,) * count] * len(found))
        left_out = self._merged("r", UNITS * REPLICATES / (done * (REPLICATES - 1)), False)
        by = "".join(f"{g}, " for g in self._groups)
        values = ", ".join(f"{_finite(sql.outputs[n].sql)} AS v{n}" for n in with_interval)
        # Without one replicate there may be no answer, as where a denominator is zero then.
        spreads = ", ".join(
            f"CASE WHEN count(v{n}) = {REPLICATES} THEN nullif(stddev_pop(v{n}), 0) END AS h{n}, skewness(v{n}) AS k{n}"
            for n in with_interval
        )
        group_by = f" GROUP BY {', '.join(self._groups)}" if self._groups else ""
        on = " AND ".join(f"e.{g} IS NOT DISTINCT FROM w.{g}" for g in self._groups)
        bounded = ", ".join(f"CASE WHEN {self._is_supported(n)} THEN w.h{n} END AS h{n}, k{n}" for n in with_interval)
        shown = ", ".join([*outputs, *(f"h{n}, k{n}" for n in with_interval)])
        rows = self._db.execute(
            f"WITH e AS ({estimates}), j AS ({left_out}), v AS (SELECT {by}{values} FROM j), "
            f"w AS (SELECT {by}{spreads} FROM v{group_by}), "
            f"x AS (SELECT e.*, {bounded} FROM e, w{f' WHERE {on}' if on else ''}) "
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
        return " AND ".join(f"e.s{n} >= {_SUPPORT}" for n in self._sql.outputs[output].aggregates)

    def _merged(self, replicate: str, weight: float, is_exact: bool, more: Sequence[str] = ()) -> str:
        """SQL of all groups with their aggregates; with a name for it, of those without each replicate."""
        columns = [*self._groups, *([replicate] if replicate else [])]
        merged = [
            (a.exact if is_exact else a.merge).format(*names, w=f"{weight!r}::DOUBLE") + f" AS a{n}"
            for n, (a, names) in enumerate(zip(self._sql.aggregates, self._names, strict=True))
        ]
        others = f", (SELECT unnest(range({REPLICATES})) AS {replicate}) WHERE rep <> {replicate}" if replicate else ""
        group_by = f" GROUP BY {', '.join(columns)}" if columns else ""
        return f"SELECT {', '.join([*columns, *merged, *more])} FROM {STATE}{others}{group_by}"


class CollectedAnswers:
    """The answers of a query whose rows are final once they are computed."""

    bounded: tuple[int, ...] = ()
    continues_in_batches = True

    def __init__(self, engine: QueryEngine, sql: CollectedSql) -> None:
        self._engine, self._db, self._sql = engine, engine.connection, sql

    def add(self, lo: int, hi: int) -> None:
        """Compute the batch of these units, and keep its rows."""
        self._engine.add_batch(STATE, self._sql.batch.of(lo, hi), is_first=lo == 0)

    def reads(self, table: str) -> bool:
        """Whether answers need a table that was computed once; batches may need it in any case."""
        return table in self._sql.tail

    def answer(self, done: int, confidence: float) -> AnswerTable:  # noqa: ARG002 - they have no interval
        """The rows so far."""
        outputs = ", ".join(o.sql for o in self._sql.outputs)
        found = self._db.execute(f"{self._sql.select} {outputs} FROM {STATE} {self._sql.tail}").fetchall()
        count = len(self._sql.outputs)
        return AnswerTable(found, [(None,) * count] * len(found))


def _finite(sql: str) -> str:
    """SQL of a value as a number, or NULL."""
    return f"CASE WHEN isfinite(({sql})::DOUBLE) THEN ({sql})::DOUBLE END"
