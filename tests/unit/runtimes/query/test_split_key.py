"""By which key queries are split that are not of TPC-H, and why others are not."""

from __future__ import annotations

import pytest

from hocket.runtimes.query.batch_sql import Rewriting, UnitRows
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

    def hash_kind(self, table: str, column: str) -> str:
        return SCHEMA[table].get(column, "")

    def largest_share(self, table: str, column: str) -> float:
        return {("visits", "customer"): 0.03}.get((table, column), 1 / self.distinct(table, column))

    def stored_keys(self, table: str) -> tuple[str, ...]:  # noqa: ARG002 - of none
        return ()


class Prepared(Known):
    def __init__(self, **keys: tuple[str, ...]) -> None:
        self._keys = keys

    def stored_keys(self, table: str) -> tuple[str, ...]:
        return self._keys.get(table, ())


def split(sql: str, known: Known | None = None) -> Split:
    return find_split(blocks_of(read_statement(sql, SCHEMA)), known or Known())


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
    "a CTE that is needed in full before the first batch": (
        "WITH totals AS (SELECT customer, sum(amount) AS total FROM sales GROUP BY customer) SELECT country, total "
        "FROM customers c JOIN totals t ON c.customer = t.customer WHERE total = (SELECT max(total) FROM totals)",
        "needed in full before the first batch",
    ),
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
    rewriting = Rewriting(top, find_split(top, Known()), lambda table, column: UnitRows(table, column))
    return rewriting.sampled(16).batch.of(0, 15)


def test_the_kept_side_of_an_outer_join_is_split() -> None:
    kept = split("SELECT country, count(sale) FROM customers c LEFT JOIN sales s ON s.customer = c.customer GROUP BY 1")
    assert "customers.customer" in str(kept)
    torn = split("SELECT country, count(l.sale) FROM customers c LEFT JOIN lines l ON l.price > 3 GROUP BY 1")
    assert str(torn) == "by rows of customers; lines read whole"


def test_many_groups_are_not_complete_at_the_price_of_reading_all_in_every_batch() -> None:
    sql = (
        "SELECT c.customer, count(*) FROM customers c, sales s, lines l WHERE c.customer = s.customer AND {} GROUP BY 1"
    )
    assert "customers.customer = sales.customer" in str(split(sql.format("s.sale = l.sale")))
    by_name = (
        "SELECT since, count(*) FROM customers c, sales s, lines l WHERE c.country = s.day AND s.sale = l.sale "
        "GROUP BY since"
    )
    assert str(split(by_name)) == "by lines.sale = sales.sale; customers read whole"


def test_a_key_with_few_values_is_not_taken() -> None:
    found = split("SELECT count(*) FROM sales a JOIN sales b ON a.day = b.day")
    assert "rows of sales" in str(found)


def test_what_was_prepared_is_preferred() -> None:
    star = "SELECT kind, sum(amount) FROM sales JOIN products USING (product) GROUP BY kind"
    assert str(split(star, Prepared(sales=("customer",)))) == "by sales.customer; products read whole"
    both = split(star, Prepared(sales=("customer", "product"), products=("product",)))
    assert str(both) == "by products.product = sales.product"
    # Where only that key is right, it is taken, whatever was prepared.
    sums = "SELECT avg(total) FROM (SELECT customer, sum(amount) AS total FROM sales GROUP BY customer)"
    assert str(split(sums, Prepared(sales=("sale",)))) == "by sales.customer"


def test_of_equal_columns_of_a_table_the_prepared_one_is_taken() -> None:
    sql = "SELECT sum(amount) FROM sales s JOIN lines l ON s.sale = l.sale AND s.sale = s.product"
    assert "sales.product" in str(split(sql))
    assert "sales.sale" in str(split(sql, Prepared(sales=("sale",), lines=("sale",))))


def test_any_prepared_key_of_a_single_table_will_do() -> None:
    assert str(split("SELECT day, count(*) FROM sales GROUP BY day", Prepared(sales=("sale",)))) == "by sales.sale"
    assert "rows of sales" in str(split("SELECT day, count(*) FROM sales GROUP BY day", Prepared(sales=("rowid",))))


def test_a_key_of_which_one_value_has_many_rows_is_not_taken() -> None:
    """Visits without a customer would all be in one bucket."""
    found = split("SELECT country, count(*) FROM visits v LEFT JOIN customers c ON v.customer = c.customer GROUP BY 1")
    assert str(found) == "by rows of visits; customers read whole"
    with pytest.raises(NotSplit, match=r"one value of visits\.customer has 3\.0% of the rows"):
        split("SELECT avg(n) FROM (SELECT customer, count(*) AS n FROM visits GROUP BY customer)")


def test_of_the_data_no_more_is_asked_than_of_the_best_key() -> None:
    """How often a value stands in a column, or a row in a table, may take longer to find than the answer."""
    asked: list[tuple[str, str]] = []

    class Counted(Prepared):
        def largest_share(self, table: str, column: str) -> float:
            asked.append((table, column))
            return super().largest_share(table, column)

    sql = "SELECT day, count(*) FROM sales s WHERE EXISTS (SELECT 1 FROM lines l WHERE l.sale = s.sale) GROUP BY day"
    split(sql, Counted(sales=("sale",), lines=("sale",)))
    assert sorted(asked) == [("lines", "sale"), ("sales", "sale")]


def test_if_the_best_key_has_too_few_values_the_next_one_is_taken() -> None:
    sql = "SELECT since, count(*) FROM visits JOIN customers USING (customer) JOIN lines ON line = visit GROUP BY 1"
    assert str(split(sql)).startswith(
        "by rows of lines"
    )  # Of a customer are too many visits, of `line` too few values.
