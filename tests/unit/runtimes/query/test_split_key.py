"""By which key queries are split that are not of TPC-H, and why others are not."""

from __future__ import annotations

import pytest

from hocket.runtimes.query.batch_sql import Rewriting
from hocket.runtimes.query.blocks import NotSplit, blocks_of
from hocket.runtimes.query.split_key import Split, find_split
from hocket.runtimes.query.statement import read_statement

SCHEMA = {
    "sales": {"sale": "INT", "customer": "INT", "product": "INT", "day": "DATE", "amount": "DECIMAL(9,2)"},
    "lines": {"sale": "INT", "line": "INT", "product": "INT", "price": "DECIMAL(9,2)"},
    "customers": {"customer": "INT", "country": "VARCHAR", "since": "DATE"},
    "products": {"product": "INT", "kind": "VARCHAR"},
    "visits": {"visit": "INT", "customer": "INT"},
}
ROWS = {"sales": 1e6, "lines": 5e6, "customers": 1e5, "products": 1e4, "visits": 2e6}
DISTINCT = {"sale": 1e6, "customer": 1e5, "product": 1e4, "line": 10.0, "country": 50.0, "kind": 20.0, "day": 2000.0}


class Known:
    def rows(self, table: str) -> float:
        return ROWS[table]

    def distinct(self, table: str, column: str) -> float:
        return min(DISTINCT.get(column, 1e6), ROWS[table])

    def largest_share(self, table: str, column: str) -> float:
        return {("visits", "customer"): 0.03}.get((table, column), 1 / self.distinct(table, column))


def split(sql: str) -> Split:
    return find_split(blocks_of(read_statement(sql, SCHEMA)), Known())


SPLIT = {
    "a star join is split by the key of its largest table": (
        "SELECT kind, sum(amount) FROM sales JOIN products USING (product) GROUP BY kind",
        "sampled", "products.product = sales.product",
    ),
    "two large tables are split by their key": (
        "SELECT country, sum(price) FROM sales s JOIN lines l ON s.sale = l.sale JOIN customers c "
        "ON c.customer = s.customer GROUP BY country",
        "sampled", "lines.sale = sales.sale",
    ),
    "a row number does for one table": ("SELECT day, count(*) FROM sales GROUP BY day", "sampled", "rows of sales"),
    "many groups are complete": ("SELECT customer, sum(amount) FROM sales GROUP BY 1", "groups", "sales.customer"),
    "EXISTS is closed by its key": (
        "SELECT count(*) FROM sales s WHERE EXISTS (SELECT 1 FROM lines l WHERE l.sale = s.sale AND price > 9)",
        "sampled", "lines.sale = sales.sale",
    ),
    "a mean of each customer is closed by the customer": (
        "SELECT count(*) FROM sales s WHERE amount > (SELECT avg(amount) FROM sales x WHERE x.customer = s.customer)",
        "sampled", "sales.customer",
    ),
    "sums of sums are split by the inner group": (
        "SELECT avg(total) FROM (SELECT customer, sum(amount) AS total FROM sales GROUP BY customer)",
        "sampled", "sales.customer",
    ),
    "a CTE used twice is split in both": (
        "WITH totals AS (SELECT customer, sum(amount) AS total FROM sales GROUP BY customer) "
        "SELECT count(*) FROM totals a JOIN totals b ON a.customer = b.customer WHERE a.total > b.total / 2",
        "sampled", "sales.customer",
    ),
    "a window of each customer is closed by the customer": (
        "SELECT avg(amount) FROM "
        "(SELECT amount, row_number() OVER (PARTITION BY customer ORDER BY day) AS n FROM sales) WHERE n = 1",
        "sampled", "sales.customer",
    ),
    "IN over groups is closed by their key": (
        "SELECT sum(amount) FROM sales WHERE sale IN (SELECT sale FROM lines GROUP BY sale HAVING count(*) > 3)",
        "sampled", "lines.sale = sales.sale",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLIT)
def test_a_query_is_split(name: str) -> None:
    sql, mode, key = SPLIT[name]
    found = split(sql)
    assert (found.mode.value, key in str(found)) == (mode, True), str(found)


NOT_SPLIT = {
    "a window over everything": (
        "SELECT avg(n) FROM (SELECT row_number() OVER (ORDER BY amount) AS n FROM sales)", "a window goes over rows",
    ),
    "a LIMIT within": ("SELECT avg(amount) FROM (SELECT amount FROM sales ORDER BY amount LIMIT 9)", "LIMIT within"),
    "a median of large groups": ("SELECT day, median(amount) FROM sales GROUP BY day", "cannot be merged"),
    "DISTINCT over groups": ("SELECT DISTINCT count(*) FROM sales GROUP BY day", "DISTINCT over groups"),
    "ROLLUP": ("SELECT day, count(*) FROM sales GROUP BY ROLLUP (day)", "ROLLUP"),
    "groups of groups of something else": (
        "SELECT avg(total) FROM (SELECT day, sum(amount) AS total FROM sales GROUP BY day)", "several keys",
    ),
    "DISTINCT within": ("SELECT count(*) FROM (SELECT DISTINCT day FROM sales)", "DISTINCT"),
    "a union within": (
        "SELECT count(*) FROM (SELECT sale FROM sales UNION ALL SELECT sale FROM lines)", "UNION is not split",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_SPLIT)
def test_a_query_that_cannot_be_split_says_why(name: str) -> None:
    sql, why = NOT_SPLIT[name]
    with pytest.raises(NotSplit, match=why):
        batches(sql)


def batches(sql: str) -> str:
    top = blocks_of(read_statement(sql, SCHEMA))
    return Rewriting(top, find_split(top, Known()), "{}.{}".format).sampled(16).batch


def test_the_kept_side_of_an_outer_join_is_split() -> None:
    kept = split("SELECT country, count(sale) FROM customers c LEFT JOIN sales s ON s.customer = c.customer GROUP BY 1")
    assert "customers.customer" in str(kept)
    torn = split("SELECT country, count(l.sale) FROM customers c LEFT JOIN lines l ON l.price > 3 GROUP BY 1")
    assert str(torn) == "by rows of customers; lines read whole"


def test_a_key_with_few_values_is_not_taken() -> None:
    found = split("SELECT count(*) FROM sales a JOIN sales b ON a.day = b.day")
    assert "rows of sales" in str(found)


def test_a_key_of_which_one_value_has_many_rows_is_not_taken() -> None:
    """Visits without a customer would all be in one bucket."""
    found = split("SELECT country, count(*) FROM visits v LEFT JOIN customers c ON v.customer = c.customer GROUP BY 1")
    assert str(found) == "by rows of visits; customers read whole"
    with pytest.raises(NotSplit, match=r"one value of visits\.customer has 3\.0% of the rows"):
        split("SELECT avg(n) FROM (SELECT customer, count(*) AS n FROM visits GROUP BY customer)")
