"""Intervals: how often they cover the truth, where there are none, and what accuracy they promise."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import duckdb
import numpy as np
import pytest

from hocket.query import Query
from hocket.runtimes.query.accuracy import (
    ColumnAccuracy,
    EnvelopeAccuracy,
    HalfWidths,
    IntervalAccuracy,
    Rows,
    relative_error,
)
from hocket.runtimes.query.answers import REPLICATES
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import UNITS, DuckdbData
from hocket.runtimes.query.intervals import half_width
from hocket.runtimes.query.student_t import quantile

SEEDS = 60


@pytest.fixture(scope="module")
def tables() -> DuckdbData:
    """Orders with one to seven lines each, of skewed prices: rows of one key are alike."""
    db = duckdb.connect()
    db.execute("SELECT setseed(0.5)")
    db.execute(
        "CREATE TABLE orders AS SELECT i AS id, (random() * 4)::INTEGER AS region, exp(3 * random()) AS size "
        "FROM range(6000) r(i)"
    )
    db.execute(
        "CREATE TABLE lines AS SELECT id AS order_id, size * (1 + random()) AS price "
        "FROM orders, range(1, 8) r(n) WHERE n <= 1 + id % 7"
    )
    return DuckdbData(db)


SQL = """
SELECT region, count(*) AS n, sum(price) AS total, avg(price) AS mean, sum(price) / count(DISTINCT id) AS each,
    stddev(price) AS spread
FROM orders JOIN lines ON id = order_id GROUP BY region ORDER BY region
"""


@pytest.mark.long
def test_intervals_cover_the_truth_as_often_as_they_say(tables: DuckdbData) -> None:
    truth = tables.connection.execute(SQL).fetchall()
    covered, cells = [0] * 6, 0
    for seed in range(1, SEEDS + 1):
        tables.seed = seed
        answers = iter(Query(SQL, tables))
        next(answers), next(answers)
        third = next(answers)
        for row, widths, true in zip(third.rows, third.half_widths, truth, strict=True):
            cells += 1
            for n in range(1, 6):
                assert widths[n] is not None
                covered[n] += abs(float(row[n]) - float(true[n])) <= widths[n]
    tables.seed = 0
    for n in range(1, 6):  # Of 300 cells each.
        assert 0.91 <= covered[n] / cells <= 0.99, (n, covered[n] / cells)


def test_rows_of_files_are_dealt_out_as_by_chance(tmp_path: Path) -> None:
    """Not evenly, nor by some rhythm of their numbers: replicates would be alike, and intervals too narrow."""
    file = tmp_path / "t.parquet"
    duckdb.connect().execute(f"COPY (SELECT i % 7 AS day FROM range(50_000) r(i)) TO '{file}'")
    data = open_data(tmp_path)
    rows = data.unit_rows("t", "rowid")
    units = f"SELECT day, {rows.unit} AS unit FROM {rows.relation}"
    counts = data.connection.execute(f"SELECT day, unit, count(*) AS n FROM ({units}) GROUP BY day, unit").fetchall()
    expected = 50_000 / 7 / UNITS
    spread = sum((n - expected) ** 2 / expected for _, _, n in counts) / (7 * UNITS)
    assert 0.9 < spread < 1.1


def test_a_group_with_too_few_rows_has_no_interval_yet(tables: DuckdbData) -> None:
    sql = "SELECT id < 12 AS few, sum(price) AS total FROM orders JOIN lines ON id = order_id GROUP BY few ORDER BY few"
    answers = list(Query(sql, tables))
    first = {row[0]: widths[1] for row, widths in zip(answers[0].rows, answers[0].half_widths, strict=True)}
    assert first[False] is not None
    assert first.get(True) is None
    half = {row[0]: widths[1] for row, widths in zip(answers[-2].rows, answers[-2].half_widths, strict=True)}
    assert half[True] is None
    assert answers[-2].accuracy is None  # Nothing is promised for all groups while one has no interval.


def test_a_goal_ends_a_query_early_and_one_that_is_missed_says_so(tables: DuckdbData) -> None:
    sql = "SELECT region, count(*) AS n FROM orders GROUP BY region"
    query = Query(sql, tables, until="acc >= 80%")
    answers = list(query)
    assert not answers[-1].is_exact
    assert query.meets_goal(answers[-1])
    assert not query.meets_goal(answers[0])
    assert answers[-1].accuracy is not None
    assert answers[-1].accuracy >= 0.8
    late = Query(sql, tables, until="acc >= 99.99% within 0.000001s")
    (only,) = late
    assert not late.is_in_time(only)
    assert not late.meets_goal(only)


COLUMNS = ("g", "a", "b")


def promised(
    rows: Rows, widths: HalfWidths, *, worst: bool = False, weights: dict[str, float] | None = None, answers: int = 1
) -> float | None:
    return IntervalAccuracy(ColumnAccuracy(COLUMNS, worst, weights or {}), (1, 2), 0.95, answers).of(rows, widths)


def test_accuracy_is_of_all_cells_at_once() -> None:
    rows, widths = [(1, 100.0, 10.0), (2, 50.0, 10.0)], [(None, 1.0, 0.1), (None, 1.0, 0.2)]
    wider = quantile(1 - 0.025 / 4, 15) / quantile(0.975, 15)
    error = 0.02 * wider / (1 - 0.02 * wider)  # of the exact value, which may be smaller than the estimate
    assert promised(rows, widths, worst=True) == pytest.approx(1 - error)
    assert promised(rows, widths) == pytest.approx(1 - error)
    uneven = [(None, 9.0, 0.1), (None, 9.0, 0.2)]
    assert promised(rows, uneven) < promised(rows, uneven, weights={"a": 0.0}) == pytest.approx(1 - error)
    assert promised(rows, [(None, None, 0.1), (None, 1.0, 0.2)]) is None
    assert promised([(1, 0.0, 0.0)], [(None, 1.0, 0.0)]) == 0.5
    assert promised([], []) is None
    assert promised(rows, widths, answers=6) < promised(rows, widths)  # more answers, less promised


def test_a_promise_holds_for_the_smallest_value_in_the_interval() -> None:
    (error,) = (1 - promised([(1, 100.0, 1.0)], [(None, 20.0, 0.0)], worst=True),)
    wide = 20.0 * quantile(1 - 0.025 / 2, 15) / quantile(0.975, 15)
    assert relative_error(100.0, 100.0 - wide) == pytest.approx(error)
    assert promised([(1, 10.0, 1.0)], [(None, 12.0, 0.0)], worst=True) == 0.0


def test_relative_errors() -> None:
    assert relative_error(-90.0, -100.0) == pytest.approx(0.1)
    assert relative_error(0.0, 0.0) == relative_error(None, None) == 0.0
    assert relative_error(1.0, 0.0) == relative_error(None, 1.0) == relative_error(5.0, 1.0) == 1.0


def test_the_envelope_is_the_smallest_over_the_largest_of_the_last_answers() -> None:
    rule = EnvelopeAccuracy(ColumnAccuracy(COLUMNS, False, {}), (1, 2), window=3)
    nothing = [(None, None, None)] * 2
    assert rule.of([("x", 50.0, 1), ("y", 9.0, 1)], nothing) is None
    assert rule.of([("y", 10.0, 1), ("x", 100.0, 1)], nothing) is None  # Groups are told by name, in whatever order.
    assert rule.of([("x", 90.0, 1), ("y", 10.0, 1)], nothing) == pytest.approx((0.5 + 1) / 2)
    assert rule.of([("x", 95.0, 1), ("y", 10.0, 1)], nothing) == pytest.approx((0.9 + 1) / 2)  # 50 is too old.
    assert rule.of([("x", 95.0, 1), ("z", 10.0, 1)], nothing) == pytest.approx(0.0)  # A new group was not there before.


@pytest.mark.parametrize(
    ("values", "ratio"),
    [((-8, -10, -9), 0.8), ((-1, 2, 3), 0.0), ((0, 0, 0), 1.0), ((0, 0, 5), 0.0), ((None, 1, 1), 0.0), (("b",) * 3, 1)],
)
def test_the_envelope_of_values_that_are_not_positive(values: tuple[object, ...], ratio: float) -> None:
    rule = EnvelopeAccuracy(ColumnAccuracy(("v",), True, {}), (0,), window=3)
    assert [rule.of([(value,)], [(None,)]) for value in values][-1] == pytest.approx(ratio)


def test_a_query_may_stop_by_the_envelope(tables: DuckdbData) -> None:
    sql = "SELECT region, count(*) AS n, max(size) AS top FROM orders GROUP BY region"
    query = Query(sql, tables, until="acc >= 60%", accuracy_rule="envelope")
    answers = list(query)
    assert [answer.accuracy is None for answer in answers[:3]] == [True, True, False]
    assert not answers[-1].is_exact
    assert query.meets_goal(answers[-1])
    assert [a.accuracy for a in query] == [a.accuracy for a in answers]  # A second run does not know of the first.


def coverage(sigma: float, rows: int, *, allow_for_skew: bool) -> float:
    """How often intervals of sums of log-normal values cover, over samples of an eighth of the rows."""
    from scipy.stats import skew  # not above: to load it takes a second

    draw = np.random.default_rng(0)
    t, covered = quantile(0.975, REPLICATES - 1), []
    for _ in range(20):
        values = np.exp(draw.normal(0.0, sigma, rows))
        for _ in range(30):
            units = draw.integers(0, 8 * REPLICATES, rows)
            totals = np.bincount(units, values, minlength=8 * REPLICATES)[:REPLICATES]
            error = 8 * sqrt(REPLICATES * (1 - 1 / 8)) * float(np.std(totals, ddof=1))
            skewness = float(skew(totals, bias=False)) if allow_for_skew else 0.0
            width = half_width(error, skewness, t, REPLICATES)
            covered.append(abs(8 * totals.sum() - values.sum()) <= width)
    return float(np.mean(covered))


def test_intervals_allow_for_skewed_values() -> None:
    """With few rows, of which some are far larger than the others, samples without these are too sure."""
    too_sure = coverage(1.5, 500, allow_for_skew=False)
    assert too_sure < 0.87
    assert coverage(1.5, 500, allow_for_skew=True) > max(0.88, too_sure + 0.03)
    assert 0.93 < coverage(0.3, 500, allow_for_skew=True) < 0.98


def test_the_half_width_grows_with_the_skewness_beyond_what_is_chance() -> None:
    plain = half_width(2.0, 0.0, 2.13, 16)
    assert plain == half_width(2.0, 0.5, 2.13, 16) == pytest.approx(4.26)
    assert plain < half_width(2.0, 0.8, 2.13, 16) == half_width(2.0, -0.8, 2.13, 16) < half_width(2.0, 1.2, 2.13, 16)
    assert half_width(2.0, 0.5640761 + 1e-5, 2.13, 16) == pytest.approx(plain, rel=1e-3)  # It begins without a step.


@pytest.mark.parametrize("probability", [0.75, 0.975, 0.9999, 1 - 1e-7])
@pytest.mark.parametrize("freedom", [1, 2, 15, 300])
def test_quantiles_of_t(probability: float, freedom: int) -> None:
    from scipy.stats import t as student

    assert quantile(probability, freedom) == pytest.approx(student.ppf(probability, freedom), rel=1e-6)
