"""What batches read is what a plain run reads, whatever stands in literals, names and types."""

from __future__ import annotations

from typing import Literal

import duckdb
import pytest
from tests.unit.runtimes.query.conftest import same_rows

from hocket.query import Query
from hocket.runtimes.query.duckdb_data import DuckdbData


@pytest.fixture(scope="module")
def tables() -> DuckdbData:
    db = duckdb.connect()
    db.execute(
        "CREATE TABLE a AS SELECT (i - 500)::INTEGER AS k, i % 3 AS g, "
        "CASE i % 2 WHEN 0 THEN '__lo {x} $hocket_first' ELSE '__hi' END AS s FROM range(1000) r(i)"
    )
    db.execute("CREATE TABLE b AS SELECT (i - 500)::BIGINT AS k, (i - 500)::DOUBLE AS f, i AS v FROM range(1000) r(i)")
    db.execute("CREATE VIEW seen AS SELECT k, v FROM b WHERE v > 10")
    return DuckdbData(db)


QUERIES = {
    "a literal that looks like a bound": "SELECT s, count(*) AS n FROM a WHERE s <> '__hi' GROUP BY s ORDER BY s",
    "a literal that looks like a parameter": "SELECT k, s FROM a WHERE s = '__lo {x} $hocket_first' ORDER BY k",
    "keys of several widths, with negative numbers": (
        "SELECT g, sum(v) AS v FROM a JOIN b ON a.k = b.k GROUP BY g ORDER BY g"
    ),
    "an integer key that is joined to a float": (
        "SELECT g, sum(v) AS v FROM a JOIN b ON a.k = b.f GROUP BY g ORDER BY g"
    ),
    "an alias in quotes": 'SELECT "my a".g, count(*) AS n FROM a AS "my a" GROUP BY "my a".g ORDER BY 1',
    "an alias in quotes that columns leave out": 'SELECT g, count(*) AS n FROM a AS "my a" GROUP BY g ORDER BY 1',
    "aliases that are words of SQL": (
        'SELECT g, sum(v) AS n FROM a AS "group" JOIN b AS "order by" ON "group".k = "order by".k GROUP BY g ORDER BY 1'
    ),
    "a block in FROM with such an alias": (
        'SELECT g, sum("in".v) AS n FROM a JOIN (SELECT k, sum(v) AS v FROM b AS "x y" GROUP BY k) AS "in" '
        'ON a.k = "in".k GROUP BY g ORDER BY 1'
    ),
    "a view, which has no row numbers": "SELECT v % 5 AS m, count(*) AS n, sum(k) AS k FROM seen GROUP BY m ORDER BY m",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.usefixtures("small_keys")
def test_the_last_answer_is_the_plain_one(tables: DuckdbData, name: str) -> None:
    plain = tables.connection.execute(QUERIES[name]).fetchall()
    query = Query(QUERIES[name], tables)
    assert query.mode is not None, query.how
    answers = list(query)
    assert len(answers) == 6
    assert same_rows(answers[-1].rows, plain), query.how


@pytest.mark.usefixtures("small_keys")
def test_columns_whose_equal_values_have_other_hashes_are_no_key(tables: DuckdbData) -> None:
    query = Query("SELECT g, sum(v) AS v FROM a JOIN b ON a.k = b.f GROUP BY g", tables)
    assert "rows of" in query.how


def test_a_query_can_be_run_again(tables: DuckdbData) -> None:
    query = Query("SELECT g, count(*) AS n FROM a GROUP BY g ORDER BY g", tables)
    first, second = list(query), list(query)
    assert [answer.rows for answer in first] == [answer.rows for answer in second]
    for one, other in zip(first, second, strict=True):
        widths = [row[1] for row in one.half_widths]
        assert widths == pytest.approx([row[1] for row in other.half_widths])
    assert first[2].half_widths[0][1] is not None


def test_an_aggregate_of_no_rows_has_an_answer_after_the_first_batch_too(tables: DuckdbData) -> None:
    answers = list(Query("SELECT count(*) AS n, sum(k) AS k FROM a WHERE k > 1000", tables))
    assert len(answers) > 1
    assert {answer.rows for answer in answers} == {((0, None),)}
    assert {answer.half_widths for answer in answers} == {((None, None),)}


SPLIT_AND_WHOLE = "SELECT d.name, sum(a.k) AS k FROM a JOIN d ON a.g = d.g {} GROUP BY d.name ORDER BY d.name"


@pytest.mark.parametrize(
    ("where", "used"),
    [
        ("WHERE d.name <> 'name 1'", ["hocket_used_0_0"]),
        ("WHERE d.name <> 'name 1' AND d.g IN (SELECT max(k) % 3 FROM b)", ["hocket_once_1", "hocket_used_0_0"]),
        ("WHERE d.name <> a.s", []),  # not of one table
        ("", []),
    ],
)
def test_conditions_of_a_table_that_is_read_whole_are_looked_at_once(
    tables: DuckdbData, where: str, used: list[str]
) -> None:
    tables.connection.execute("CREATE OR REPLACE TABLE d AS SELECT i AS g, 'name ' || i AS name FROM range(3) r(i)")
    data = DuckdbData(tables.connection)
    sql = SPLIT_AND_WHOLE.format(where)
    query = Query(sql, data)
    assert query.how.startswith("by rows of a; d")
    assert sorted([*query._once, *query._used]) == used
    assert same_rows(list(query)[-1].rows, data.connection.execute(sql).fetchall())


def test_a_table_is_reduced_to_what_smaller_ones_are_joined_to(tables: DuckdbData) -> None:
    db = tables.connection
    db.execute("CREATE OR REPLACE TABLE region AS SELECT i AS r, 'region ' || i AS region FROM range(5) r(i)")
    db.execute("CREATE OR REPLACE TABLE shop AS SELECT i AS s, i % 5 AS r FROM range(60) r(i)")
    db.execute("CREATE OR REPLACE TABLE sold AS SELECT i % 60 AS s, i AS v FROM range(9000) r(i)")
    data = DuckdbData(db)
    sql = (
        "SELECT region, sum(v) AS v FROM sold JOIN shop ON sold.s = shop.s JOIN region ON shop.r = region.r "
        "WHERE region = 'region 3' GROUP BY region ORDER BY region"
    )
    query = Query(sql, data)
    assert "shop, region read whole" in query.how
    assert same_rows(list(query)[-1].rows, db.execute(sql).fetchall())
    assert db.execute("SELECT count(*) FROM hocket_used_0_1").fetchone() == (12,)
    outer = sql.replace("JOIN region", "LEFT JOIN region").replace("WHERE region =", "AND region =")
    kept = Query(outer, data)
    assert kept._used == {}  # Of an outer join, rows without a partner count too.
    assert same_rows(list(kept)[-1].rows, db.execute(outer).fetchall())


SHOPS = "SELECT s.r, sum(v) AS v FROM sold JOIN shop AS s ON sold.s = s.s WHERE s.r < 3 {} GROUP BY s.r {} ORDER BY s.r"


@pytest.fixture
def shops(tables: DuckdbData) -> DuckdbData:
    db = tables.connection
    db.execute("CREATE OR REPLACE TABLE shop AS SELECT i AS s, i % 5 AS r FROM range(60) r(i)")
    db.execute("CREATE OR REPLACE TABLE sold AS SELECT i % 60 AS s, i AS v FROM range(9000) r(i)")
    return DuckdbData(db)


def test_the_first_answer_does_not_wait_for_the_rows_that_later_batches_use(shops: DuckdbData) -> None:
    db = shops.connection
    found = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'hocket_used_0_0'"
    db.execute("DROP TABLE IF EXISTS hocket_used_0_0")
    answers = iter(Query(SHOPS.format("", ""), shops))
    next(answers)
    assert db.execute(found).fetchone() == (0,)
    next(answers)
    assert db.execute(found).fetchone() == (1,)


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("code::INTEGER >= 0", "Conversion Error"),
        ("sqrt(length(code)::DOUBLE - (code = 'x')::INTEGER * 2) >= 0", "Out of Range Error"),
    ],
)
def test_conditions_that_fail_on_rows_that_the_query_does_not_come_to_end_the_batches(
    tables: DuckdbData, condition: str, error: str
) -> None:
    db = tables.connection
    db.execute("CREATE OR REPLACE TABLE sale AS SELECT i AS n, i % 90 AS s, i % 1000 AS v FROM range(60000) t(i)")
    coded = "SELECT i AS s, i % 5 AS r, CASE WHEN i < 90 THEN i::VARCHAR ELSE 'x' END AS code FROM range(50000) t(i)"
    db.execute(f"CREATE OR REPLACE TABLE coded AS {coded}")
    sql = (
        "SELECT r, sum(v) FROM sale JOIN coded USING (s) "
        f"WHERE v = 2 AND n BETWEEN 5 AND 50000 AND {condition} GROUP BY r"
    )
    query = Query(sql, DuckdbData(db))
    first, *_, last = query
    assert (first.is_exact, last.is_exact) == (False, True)
    assert same_rows(last.rows, db.execute(sql).fetchall())
    assert f"in batches it cannot be computed ({error}" in last.how


def test_two_blocks_that_use_the_same_rows_of_a_table_find_them_once(shops: DuckdbData) -> None:
    of_value = "SELECT max(v) FROM sold AS o JOIN shop AS s ON o.s = s.s WHERE s.r < 3 AND o.v = sold.v"
    sql = SHOPS.format(f"AND sold.v = ({of_value})", "")
    query = Query(sql, shops)
    assert "sold" in query.how.split(";")[0], query.how
    assert list(query._used) == ["hocket_used_0_0"]
    assert same_rows(list(query)[-1].rows, shops.connection.execute(sql).fetchall())


@pytest.mark.parametrize(
    ("having", "is_split"),
    [
        ("SELECT sum(v) * 0.1 FROM sold JOIN shop AS s ON sold.s = s.s WHERE s.r < 3", False),
        ("SELECT sum(v) * 0.1 FROM sold JOIN shop AS s ON sold.s = s.s WHERE s.r < 2", True),  # other rows
        ("SELECT avg(v) FROM sold", True),
    ],
)
def test_a_join_that_is_needed_in_full_before_the_first_batch_is_not_made_again_in_batches(
    shops: DuckdbData, having: str, is_split: bool
) -> None:
    sql = SHOPS.format("", f"HAVING sum(v) > ({having})")
    query = Query(sql, shops)
    assert (query.mode is not None) == is_split, query.how
    assert ("needed in full before the first batch" in query.how) != is_split
    assert same_rows(list(query)[-1].rows, shops.connection.execute(sql).fetchall())


@pytest.mark.parametrize(
    ("shown", "rule", "answers"),
    [
        ("count(DISTINCT v % 700) AS n", "intervals", 2),  # from all its values, and never with an interval
        ("count(DISTINCT v % 700) AS n", "envelope", 6),
        ("count(DISTINCT v % 700) AS n, sum(v) AS v", "intervals", 6),
        ("max(v) AS v", "intervals", 6),
    ],
)
def test_values_that_are_kept_for_no_interval_are_not_merged_again_and_again(
    shops: DuckdbData, shown: str, rule: Literal["intervals", "envelope"], answers: int
) -> None:
    sql = f"SELECT s, {shown} FROM sold GROUP BY s ORDER BY s"
    query = Query(sql, shops, accuracy_rule=rule)
    found = list(query)
    assert len(found) == answers
    assert ("after one answer all at once" in query.how) == (answers == 2)
    assert found[0].fraction == 1 / 64
    assert found[-1].is_exact
    assert same_rows(found[-1].rows, shops.connection.execute(sql).fetchall())
