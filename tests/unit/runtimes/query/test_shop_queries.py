"""Queries over a shop's sales, as dirty as real data: each is estimated with sensible intervals, or run at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import duckdb
import pytest
from tests.unit.runtimes.query.conftest import same_rows

from hocket.query import Answer, Query
from hocket.runtimes.query.duckdb_data import DuckdbData

# Customers that are not known, returns as negative amounts, discounts that are mostly NULL, channels in several
# spellings, one that came late and has three sales, amounts that are NaN, and products that were never sold.
TABLES = """
SELECT setseed(0.25);
CREATE TABLE customers AS SELECT i AS customer, ['FR', 'DE', 'IT', NULL][1 + i % 4] AS country,
    DATE '2020-01-01' + (i % 900)::INTEGER AS since FROM range(900) r(i);
CREATE TABLE products AS SELECT i AS product, ['tea', 'cups', 'books'][1 + i % 3] AS kind,
    (1 + i % 97)::DECIMAL(9, 2) / 4 AS price FROM range(700) r(i);
CREATE TABLE sales AS SELECT i AS sale,
    CASE WHEN random() < 0.05 THEN NULL ELSE (random() * 850)::INTEGER END AS customer,
    (random() * 600)::INTEGER AS product, DATE '2024-01-01' + (random() * 365)::INTEGER AS day,
    CASE WHEN random() < 0.1 THEN -1 ELSE 1 END * (exp(random() * 3) * 10)::DECIMAL(12, 2) AS amount,
    CASE WHEN random() < 0.85 THEN NULL ELSE (random() * 5)::DECIMAL(9, 3) END AS discount,
    CASE WHEN i >= 11997 THEN 'late'
        ELSE ['web', ' Web', 'shop', 'SHOP ', NULL][1 + (random() * 4)::INTEGER] END AS channel,
    CASE WHEN random() < 0.0005 THEN 'nan'::DOUBLE ELSE random() END AS score
FROM range(12000) r(i);
CREATE TABLE visits AS SELECT i AS visit, (random() * 899)::INTEGER AS customer, (random() * 30)::INTEGER AS pages
FROM range(9000) r(i);
CREATE TABLE stock AS SELECT i AS product, 0 AS pieces FROM range(700) r(i);
CREATE TABLE none AS SELECT * FROM sales WHERE false;
"""


class Case(NamedTuple):
    sql: str
    how: str  # the mode and the key, or why it is run at once


CASES = {
    "a star join with NULL keys": Case(
        "SELECT country, kind, count(*) AS n, sum(amount) AS amount FROM sales s JOIN customers c ON "
        "s.customer = c.customer JOIN products p ON s.product = p.product GROUP BY 1, 2 ORDER BY 1, 2",
        r"sampled by products.product = sales.product",
    ),
    "keys that are NULL, and kept": Case(
        "SELECT coalesce(country, '?') AS country, sum(amount) AS amount FROM sales s LEFT JOIN customers c "
        "ON s.customer = c.customer GROUP BY 1 ORDER BY 1",
        r"sampled by rows of sales; customers read whole",
    ),
    "means of sums, of which NULL has many rows": Case(
        "SELECT country, avg(total) AS total, count(*) AS n FROM (SELECT s.customer, country, sum(amount) AS "
        "total FROM sales s JOIN customers c ON c.customer = s.customer GROUP BY s.customer, country) GROUP "
        "BY country ORDER BY country",
        r"all at once: .*one value of sales.customer has 5",
    ),
    "two facts, each grouped first": Case(
        "SELECT country, sum(total) AS amount, sum(pages) AS pages FROM customers c JOIN (SELECT customer, "
        "sum(amount) AS total FROM sales GROUP BY customer) s ON s.customer = c.customer JOIN (SELECT "
        "customer, sum(pages) AS pages FROM visits GROUP BY customer) v ON v.customer = c.customer GROUP BY "
        "country ORDER BY country",
        r"sampled by visits.customer",
    ),
    "a correlated mean": Case(
        "SELECT kind, count(*) AS n, sum(amount) AS amount FROM sales s JOIN products p ON p.product = "
        "s.product WHERE amount > (SELECT avg(x.amount) FROM sales x WHERE x.product = s.product) GROUP BY "
        "kind ORDER BY kind",
        r"sampled by products.product = sales.product",
    ),
    "rows without a partner": Case(
        "SELECT country, count(*) AS n FROM customers c WHERE NOT EXISTS (SELECT 1 FROM sales s WHERE "
        "s.customer = c.customer) GROUP BY country ORDER BY country",
        r"sampled by rows of customers",
    ),
    "NOT IN a list with NULL": Case(
        "SELECT country, count(*) AS n FROM customers c WHERE customer NOT IN (SELECT customer FROM sales) "
        "GROUP BY country ORDER BY country",
        r"sampled by rows of customers; sales read whole",
    ),
    "IN groups of some size": Case(
        "SELECT kind, count(*) AS n FROM sales s JOIN products p ON p.product = s.product WHERE s.product IN "
        "(SELECT product FROM sales GROUP BY product HAVING count(*) > 20) GROUP BY kind ORDER BY kind",
        r"sampled by products.product = sales.product",
    ),
    "the last sale of each customer": Case(
        "SELECT country, count(*) AS n FROM sales s JOIN customers c ON c.customer = s.customer WHERE s.day ="
        " (SELECT max(x.day) FROM sales x WHERE x.customer = s.customer) GROUP BY country ORDER BY country",
        r"sampled by rows of sales",
    ),
    "windows over rows of one key": Case(
        "SELECT sum(x) AS x FROM (SELECT amount - avg(amount) OVER (PARTITION BY customer, product) + "
        "max(amount) OVER (PARTITION BY product, customer ORDER BY sale) AS x FROM sales)",
        r"sampled by sales.product",
    ),
    "a window over all rows": Case(
        "SELECT avg(m) FROM (SELECT avg(amount) OVER (ORDER BY sale ROWS 10 PRECEDING) AS m FROM sales)",
        r"all at once: .*a window goes over rows of several keys",
    ),
    "a window over groups": Case(
        "SELECT kind, sum(amount) AS amount, sum(amount) / sum(sum(amount)) OVER () AS share FROM sales s "
        "JOIN products p ON s.product = p.product GROUP BY kind ORDER BY kind",
        r"sampled by products.product",
    ),
    "sums of what is mostly NULL": Case(
        "SELECT trim(lower(channel)) AS channel, sum(discount) AS discount, avg(discount) AS mean, "
        "count(discount) AS n, count(*) - count(discount) AS without FROM sales GROUP BY 1 ORDER BY 1",
        r"sampled by rows of sales",
    ),
    "negative sums, and sums about zero": Case(
        "SELECT kind, sum(CASE WHEN amount < 0 THEN amount ELSE 0 END) AS returned, sum(amount) AS net, "
        "sum(amount - 60) AS below FROM sales s JOIN products p ON s.product = p.product GROUP BY kind ORDER "
        "BY kind",
        r"sampled by products.product",
    ),
    "denominators that are zero": Case(
        "SELECT kind, sum(amount) / sum(pieces) AS each, sum(amount) / nullif(sum(pieces), 0) AS none FROM "
        "sales s JOIN products p ON s.product = p.product JOIN stock t ON t.product = s.product GROUP BY kind"
        " ORDER BY kind",
        r"sampled by products.product = sales.product = stock.product",
    ),
    "denominators that are rarely not zero": Case(
        "SELECT channel, sum(amount) / count(*) FILTER (WHERE product = 7) AS each FROM sales GROUP BY "
        "channel ORDER BY channel",
        r"sampled by rows of sales",
    ),
    "a group that comes late": Case(
        "SELECT channel, count(*) AS n, sum(amount) AS amount, max(day) AS last FROM sales GROUP BY channel "
        "ORDER BY channel",
        r"sampled by rows of sales",
    ),
    "decimals": Case(
        "SELECT kind, sum(amount * price) AS a, avg(amount) AS b, sum(amount * (1 - coalesce(discount, 0) / "
        "100)) AS c, round(sum(amount) / 3, 2) AS d FROM sales s JOIN products p ON s.product = p.product "
        "GROUP BY kind ORDER BY kind",
        r"sampled by products.product",
    ),
    "FILTER and CASE": Case(
        "SELECT country, sum(amount) FILTER (WHERE channel = 'web') AS web, sum(CASE WHEN "
        "upper(trim(channel)) = 'SHOP' THEN amount END) AS shop, count_if(amount > 100) AS large FROM sales s"
        " JOIN customers c ON c.customer = s.customer GROUP BY country ORDER BY country",
        r"sampled by rows of sales",
    ),
    "variances, and a ratio of one": Case(
        "SELECT kind, var_pop(amount) AS v, stddev(amount) / avg(amount) AS cv FROM sales s JOIN products p "
        "ON s.product = p.product GROUP BY kind ORDER BY kind",
        r"sampled by products.product",
    ),
    "a share of the total": Case(
        "SELECT kind, 100 * sum(amount) / (SELECT sum(amount) FROM sales) AS share FROM sales s JOIN products"
        " p ON s.product = p.product GROUP BY kind ORDER BY kind",
        r"sampled by products.product = sales.product; sales read whole",
    ),
    "many groups, some of which are shown": Case(
        "SELECT product, sum(amount) AS amount FROM sales GROUP BY product HAVING sum(amount) > (SELECT 2 * "
        "avg(total) FROM (SELECT sum(amount) AS total FROM sales GROUP BY product)) ORDER BY amount DESC, "
        "product",
        r"groups by sales.product",
    ),
    "the first of each kind": Case(
        "SELECT kind, s.product, sum(amount) AS amount FROM sales s JOIN products p ON s.product = p.product "
        "GROUP BY kind, s.product QUALIFY row_number() OVER (PARTITION BY kind ORDER BY sum(amount) DESC, "
        "s.product) <= 2 ORDER BY 1, 3 DESC",
        r"all at once: a window goes over groups",
    ),
    "months": Case(
        "SELECT date_trunc('month', day) AS month, count(*) AS n, sum(amount) AS amount FROM sales GROUP BY 1"
        " ORDER BY 1",
        r"sampled by rows of sales",
    ),
    "GROUP BY ALL, ORDER BY ALL": Case(
        "SELECT upper(channel) AS c, count(*) + 1 AS n FROM sales GROUP BY ALL ORDER BY ALL DESC",
        r"sampled by rows of sales",
    ),
    "all columns, ORDER BY ALL": Case(
        "SELECT * FROM (SELECT * FROM customers) ORDER BY ALL",
        r"rows by rows of customers",
    ),
    "distinct pairs": Case(
        "SELECT count(DISTINCT (customer, product)) AS pairs FROM sales",
        r"all at once: COUNT",
    ),
    "texts and numbers made of aggregates": Case(
        "SELECT kind, CASE WHEN sum(amount) > 100000 THEN 'large' ELSE 'small' END AS size, CASE WHEN "
        "count(*) > 10 THEN avg(amount) END AS m FROM sales s JOIN products p ON s.product = p.product GROUP "
        "BY kind ORDER BY kind",
        r"sampled by products.product",
    ),
    "a block in FROM that refers to its neighbour": Case(
        "SELECT count(*) AS n FROM customers c, (SELECT count(*) AS k FROM sales s WHERE s.customer = "
        "c.customer) x WHERE k > 10",
        r"all at once: column 'customer' could not be resolved",
    ),
    "LATERAL": Case(
        "SELECT count(*) AS n FROM customers c, LATERAL (SELECT count(*) AS k FROM sales s WHERE s.customer ="
        " c.customer) x WHERE k > 10",
        r"all at once: LATERAL is not split",
    ),
    "UNION": Case(
        "SELECT count(*) AS n FROM (SELECT customer FROM sales UNION ALL SELECT customer FROM visits)",
        r"all at once: UNION is not split",
    ),
    "MEDIAN": Case(
        "SELECT kind, median(amount) FROM sales s JOIN products p ON s.product = p.product GROUP BY kind ORDER BY kind",
        r"all at once: MEDIAN",
    ),
    "numbers that are NaN": Case(
        "SELECT channel, sum(score) AS s, avg(score) AS m FROM sales GROUP BY channel ORDER BY channel",
        r"sampled by rows of sales",
    ),
    "an empty table": Case(
        "SELECT channel, sum(amount) FROM none GROUP BY channel",
        r"groups by none.channel",
    ),
    "no row that is asked for": Case(
        "SELECT count(*) AS n, sum(amount) AS s, avg(amount) AS m FROM sales WHERE amount > 1e9",
        r"sampled by rows of sales",
    ),
}


@pytest.fixture(scope="module")
def shop() -> DuckdbData:
    connection = duckdb.connect(config={"threads": 1})  # The same data each time.
    connection.execute(TABLES)
    return DuckdbData(connection)


@pytest.fixture(scope="module")
def run(shop: DuckdbData) -> Callable[[str], tuple[str, list[Answer]]]:
    """How a query is run, and its answers; each is run once."""

    @cache
    def run(name: str) -> tuple[str, list[Answer]]:
        query = Query(CASES[name].sql, shop)
        return query.how if query.mode is None else f"{query.mode.value} {query.how}", list(query)

    return run


Run = Callable[[str], tuple[str, list[Answer]]]
pytestmark = pytest.mark.usefixtures("small_keys")


@pytest.mark.parametrize("name", CASES)
def test_the_last_answer_is_the_plain_one(shop: DuckdbData, run: Run, name: str) -> None:
    sql, how = CASES[name]
    said, answers = run(name)
    assert re.match(how, said), said
    assert answers[-1].is_exact
    assert same_rows(answers[-1].rows, shop.connection.execute(sql).fetchall())


def test_intervals_are_about_right(run: Run) -> None:
    """Of all cells of all queries, in one order of the data: what is far off is no accident."""
    covered = cells = 0
    for name, (_sql, how) in CASES.items():
        if not how.startswith("sampled") or name == "numbers that are NaN":
            continue
        *answers, last = run(name)[1]
        bounded = last.bounded
        named = min(bounded, default=0)  # Groups come first.
        exact = {row[:named]: row for row in last.rows}
        for answer in answers[2:]:
            for row, widths in zip(answer.rows, answer.half_widths, strict=True):
                for n in bounded:
                    if (width := widths[n]) is not None and row[:named] in exact:
                        error = abs(float(row[n]) - float(exact[row[:named]][n]))
                        assert error <= 4 * width, (name, row, n, width)
                        covered, cells = covered + (error <= width), cells + 1
    assert cells > 400
    assert 0.91 < covered / cells < 0.99, covered / cells


@pytest.mark.parametrize(
    "name", ["denominators that are zero", "denominators that are rarely not zero", "rows without a partner"]
)
def test_what_says_too_little_has_no_interval(run: Run, name: str) -> None:
    answers = run(name)[1]
    assert all(width is None for answer in answers[:3] for widths in answer.half_widths for width in widths)
    assert all(answer.accuracy is None for answer in answers[:3])


def test_a_group_that_comes_late_has_no_interval_and_holds_up_a_goal(shop: DuckdbData) -> None:
    sql = CASES["a group that comes late"].sql.replace(", max(day) AS last", "")
    *answers, last = Query(sql, shop, until="acc >= 5%")
    assert last.is_exact  # Of three sales nothing can be said, so that all must be read.
    late = [w for a in answers for row, w in zip(a.rows, a.half_widths, strict=True) if row[0] == "late"]
    assert all(width is None for widths in late for width in widths)


def test_only_numbers_have_intervals(run: Run) -> None:
    fifth = run("texts and numbers made of aggregates")[1][4]
    assert {row[1] for row in fifth.rows} <= {"large", "small"}
    assert all(widths[1] is None and widths[2] is not None for widths in fifth.half_widths)
