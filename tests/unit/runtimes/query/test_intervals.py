"""Intervals: how often they cover the truth, where there are none, and what accuracy they promise."""

from __future__ import annotations

import duckdb
import pytest
from scipy.stats import t as student

from hocket.query import Query
from hocket.runtimes.query.accuracy import Accuracy
from hocket.runtimes.query.duckdb_data import DuckdbData
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


@pytest.mark.slow
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


def test_accuracy_is_of_all_cells_at_once() -> None:
    rows, widths = [(1, 100.0, 10.0), (2, 50.0, 10.0)], [(None, 1.0, 0.1), (None, 1.0, 0.2)]
    columns = ("g", "a", "b")
    mean = Accuracy(columns, False, {}, 0.95, 1).of(rows, widths, (1, 2))
    worst = Accuracy(columns, True, {}, 0.95, 1).of(rows, widths, (1, 2))
    wider = quantile(1 - 0.025 / 4, 15) / quantile(0.975, 15)
    assert worst == pytest.approx(1 - 0.02 * wider)
    assert mean == pytest.approx(1 - (0.02 + 0.02) / 2 * wider)
    only = Accuracy(columns, False, {"a": 0.0}, 0.95, 1).of(rows, [(None, 9.0, 0.1), (None, 9.0, 0.2)], (1, 2))
    assert only == pytest.approx(1 - 0.02 * wider)
    assert Accuracy(columns, False, {}, 0.95, 1).of(rows, [(None, None, 0.1), (None, 1.0, 0.2)], (1, 2)) is None
    assert Accuracy(columns, False, {}, 0.95, 1).of([(1, 0.0, 0.0)], [(None, 1.0, 0.0)], (1, 2)) == 0.5
    assert Accuracy(columns, False, {}, 0.95, 1).of([], [], (1, 2)) is None
    assert Accuracy(columns, False, {}, 0.95, 6).of(rows, widths, (1, 2)) < mean  # more looks, less promised


@pytest.mark.parametrize("probability", [0.75, 0.975, 0.9999, 1 - 1e-7])
@pytest.mark.parametrize("freedom", [1, 2, 15, 300])
def test_quantiles_of_t(probability: float, freedom: int) -> None:
    assert quantile(probability, freedom) == pytest.approx(student.ppf(probability, freedom), rel=1e-6)
