"""The answers of a query in many orders of its data, without reading the data for each.

The parts of a query are computed once for each group and value of the key. Which values come first is decided by
their hash and a seed, so that the batches of any seed are sums over these parts. All else (how parts are merged,
estimates, intervals, HAVING and ORDER BY) is the product's own code. `same_as_a_run` compares with real runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

from sqlglot import parse_one

from hocket.query import Query
from hocket.runtimes.query.answers import REPLICATES, AnswerTable, SampledAnswers
from hocket.runtimes.query.batch_sql import FIRST, LAST, BatchSql, Rewriting, SampledSql
from hocket.runtimes.query.blocks import NotSplit, blocks_of
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData, unit_of_hash
from hocket.runtimes.query.prepared_layout import ENDS, UNITS
from hocket.runtimes.query.split_key import Mode, find_split
from hocket.runtimes.query.statement import DIALECT, read_statement

_ALL = 2**64 - 1
_BY_KEY, _BY_UNIT = "benchmark_by_key", "benchmark_by_unit"


class NotSampled(Exception):
    """Why a query has no estimates with intervals."""


@cache
def tpch_queries() -> dict[int, str]:
    """The texts of the queries of TPC-H, by number."""
    data = open_data("tpch:0.001")
    return dict(data.connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())


class Orders:
    """A query whose answers are wanted in many orders."""

    def __init__(self, data: DuckdbData, sql: str) -> None:
        """Read the data once. Raises NotSampled."""
        self.data, self.sql = data, sql
        try:
            top = blocks_of(read_statement(sql, data.schema))
            split = find_split(top, data)
            if split.mode is not Mode.SAMPLED:
                raise NotSampled(f"its rows are final, but not all there ({split})")
            rewriting = Rewriting(top, split, data.hash_rows, data.rows)
            keyed = rewriting.sampled(_ALL)
        except NotSplit as reason:
            raise NotSampled(f"all at once: {reason}") from reason
        if not any(o.has_interval for o in keyed.outputs):
            raise NotSampled("no column has an interval")
        self.columns = tuple(o.name for o in keyed.outputs)
        for name, once in rewriting.once.items():
            data.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {once}")
        data.connection.execute(f"CREATE OR REPLACE TEMP TABLE {_BY_KEY} AS {keyed.batch.of(0, _ALL)}")
        self._groups = [f"g{n}" for n in range(keyed.groups)]
        self._parts = _summed(keyed)
        self._answers = SampledAnswers(data, keyed._replace(batch=self._batch()))
        self.bounded = self._answers.bounded
        # Which group a row is of: the one that has the same values in columns that are no estimates.
        self._names = [n for n, o in enumerate(keyed.outputs) if not o.is_estimate]
        self.exact = {self.group(row): row for row in data.connection.execute(sql).fetchall()}
        self.truth = {self.group(row): row for row in self._all_groups(keyed)}

    def group(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a row is of: its values that are no estimates."""
        return tuple(row[n] for n in self._names)

    def _all_groups(self, keyed: SampledSql) -> list[tuple[Any, ...]]:
        """The exact answer with the groups that HAVING or LIMIT leave out: an estimate may be shown of any."""
        groups = SampledAnswers(self.data, keyed._replace(batch=self._batch(), having="", tail=""))
        self._group_by_unit(0, UNITS)
        groups.add(0, UNITS - 1)
        return groups.answer(UNITS, 0.95).rows

    def answers(self, seed: int, confidence: float) -> Iterator[AnswerTable]:
        """The answers in one order, but for the last, which is exact."""
        self._group_by_unit(seed, ENDS[-2])  # The last batch ends with the exact answer, which is not asked for.
        done = 0
        for end in ENDS[:-1]:
            self._answers.add(done, end - 1)
            done = end
            yield self._answers.answer(done, confidence)

    def _group_by_unit(self, seed: int, end: int) -> None:
        """The parts of the first units in this order."""
        unit = unit_of_hash("rep", seed)
        columns = ", ".join([*self._groups, f"{unit} AS unit", *self._parts])
        by = ", ".join([*self._groups, "unit"])
        self.data.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {_BY_UNIT} AS "
            f"SELECT {columns} FROM {_BY_KEY} WHERE {unit} < {end} GROUP BY {by}"
        )

    def _batch(self) -> BatchSql:
        """SQL of a batch, as the product's, over the parts by unit."""
        columns = ", ".join([*self._groups, f"unit % {REPLICATES} AS rep", *self._parts])
        by = ", ".join([*self._groups, "rep"])
        sql = f"SELECT {columns} FROM {_BY_UNIT} WHERE unit BETWEEN ${FIRST} AND ${LAST} GROUP BY {by}"
        return BatchSql(parse_one(sql, dialect=DIALECT))

    def same_as_a_run(self, seed: int, confidence: float) -> bool:
        """Whether a real run with this seed gives the same answers: estimates to the bit, half widths to rounding."""
        before, self.data.seed = self.data.seed, seed
        try:
            run = list(Query(self.sql, self.data, confidence=confidence))[:-1]
        finally:
            self.data.seed = before
        found = list(self.answers(seed, confidence))
        return len(run) == len(found) and all(
            list(real.rows) == here.rows and _close(list(real.half_widths), here.half_widths)
            for real, here in zip(run, found, strict=True)
        )


def _summed(keyed: SampledSql) -> list[str]:
    """SQL that adds up the parts of several values of the key, under the same names."""
    found, number = [], 0
    for aggregate in keyed.aggregates:
        if "list" in "".join(aggregate.parts) or "list_reduce" in aggregate.merge:
            raise NotSampled(f"{aggregate.parts[-1]} is not added up here")
        kind = next((k for k in ("min", "max") if aggregate.merge.startswith(f"{k}(")), "sum")
        for _part in aggregate.parts:
            found.append(f"{kind}(p{number}) AS p{number}")
            number += 1
    return found


def _close(first: Any, second: Any) -> bool:
    return all(
        (x is None and y is None) or (x is not None and y is not None and math.isclose(x, y, rel_tol=1e-9))
        for a, b in zip(first, second, strict=True)
        for x, y in zip(a, b, strict=True)
    )


def as_number(value: Any) -> float | None:
    """A cell of an answer as a number, if it is one."""
    return float(value) if isinstance(value, int | float | Decimal) else None
