"""Merged parts of a query, and the answers that they give, with intervals from replicates.

Units are dealt out to `REPLICATES` replicates. The spread of the answers that leave out one replicate each is the
uncertainty of the answer from all of them (the jackknife): it holds for any smooth expression of sums, as ratios are.
"""

from __future__ import annotations

from math import sqrt

import duckdb
from scipy.stats import t as student

from hocket.runtimes.query.batch_sql import CollectedSql, SampledSql, part_names
from hocket.runtimes.query.duckdb_data import UNITS

REPLICATES = 16
_STATE = "hocket_state"


class SampledAnswers:
    """Of groups that are estimated from part of their rows."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sql: SampledSql) -> None:
        self._db, self._sql = connection, sql
        self._names = part_names(sql.aggregates)
        self._groups = [f"g{n}" for n in range(sql.groups)]
        self._is_new = True

    def add(self, lo: int, hi: int) -> None:
        """Compute the batch of these units, and merge it."""
        batch = self._sql.batch.format(lo=lo, hi=hi)
        if self._is_new:
            self._db.execute(f"CREATE OR REPLACE TEMP TABLE {_STATE} AS {batch}")
            self._is_new = False
        else:
            self._db.execute(f"INSERT INTO {_STATE} {batch}")

    def answer(self, done: int, confidence: float = 0.95) -> duckdb.DuckDBPyRelation:
        """The answer after so many units, each estimate followed by the half width of its interval."""
        sql, is_exact = self._sql, done == UNITS
        outputs = ", ".join(f'{o.sql} AS "{o.name}"' for o in sql.outputs)
        having = f" WHERE {sql.having}" if sql.having else ""
        estimates = self._merged("", UNITS / done, is_exact)
        if is_exact:
            return self._db.sql(f"WITH e AS ({estimates}) SELECT {outputs} FROM e{having} {sql.tail}")
        with_interval = [n for n, o in enumerate(sql.outputs) if o.has_interval]
        if not with_interval:
            return self._db.sql(f"WITH e AS ({estimates}) SELECT {outputs} FROM e{having} {sql.tail}")
        kept = (REPLICATES - 1) / REPLICATES
        left_out = self._merged("r", UNITS / (done * kept), False)
        quantile = float(student.ppf((1 + confidence) / 2, REPLICATES - 1))
        factor = quantile * sqrt((REPLICATES - 1) * (1 - done / UNITS))
        values = ", ".join(f"({sql.outputs[n].sql})::DOUBLE AS v{n}" for n in with_interval)
        widths = ", ".join(f"{factor!r} * stddev_pop(v{n}) AS h{n}" for n in with_interval)
        by = "".join(f"{g}, " for g in self._groups)
        group_by = f" GROUP BY {by.rstrip(', ')}" if by else ""
        on = " AND ".join(f"e.{g} IS NOT DISTINCT FROM w.{g}" for g in self._groups) or "true"
        columns = []
        for n, output in enumerate(sql.outputs):
            columns.append(f'{output.sql} AS "{output.name}"')
            if n in with_interval:
                columns.append(f'h{n} AS "{output.name} ±"')
        renamed = ", ".join(f"{g} AS w_{g}" for g in self._groups)
        del renamed
        return self._db.sql(
            f"WITH e AS ({estimates}), j AS ({left_out}), v AS (SELECT {by}{values} FROM j), "
            f"w AS (SELECT {by}{widths} FROM v{group_by}), "
            f"x AS (SELECT e.*, {', '.join(f'w.h{n}' for n in with_interval)} FROM e LEFT JOIN w ON {on}) "
            f"SELECT {', '.join(columns)} FROM x{having} {sql.tail}"
        )

    def _merged(self, replicate: str, weight: float, is_exact: bool) -> str:
        """SQL of all groups with their aggregates; with a name for it, of those without each replicate."""
        columns = [*self._groups, *([replicate] if replicate else [])]
        merged = [
            (a.exact if is_exact else a.merge).format(*names, w=repr(weight)) + f" AS a{n}"
            for n, (a, names) in enumerate(zip(self._sql.aggregates, self._names, strict=True))
        ]
        others = f", (SELECT unnest(range({REPLICATES})) AS {replicate}) WHERE rep <> {replicate}" if replicate else ""
        group_by = f" GROUP BY {', '.join(columns)}" if columns else ""
        return f"SELECT {', '.join([*columns, *merged])} FROM {_STATE}{others}{group_by}"


class CollectedAnswers:
    """Of rows that are final once they are there."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sql: CollectedSql) -> None:
        self._db, self._sql = connection, sql
        self._is_new = True

    def add(self, lo: int, hi: int) -> None:
        """Compute the batch of these units, and keep its rows."""
        batch = self._sql.batch.format(lo=lo, hi=hi)
        if self._is_new:
            self._db.execute(f"CREATE OR REPLACE TEMP TABLE {_STATE} AS {batch}")
            self._is_new = False
        else:
            self._db.execute(f"INSERT INTO {_STATE} {batch}")

    def answer(self, done: int, confidence: float = 0.95) -> duckdb.DuckDBPyRelation:
        """The rows so far."""
        outputs = ", ".join(f'{o.sql} AS "{o.name}"' for o in self._sql.outputs)
        return self._db.sql(f"{self._sql.select} {outputs} FROM {_STATE} {self._sql.tail}")
