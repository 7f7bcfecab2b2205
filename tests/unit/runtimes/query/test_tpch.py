"""All 22 queries of TPC-H: how each is split, and that its last answer is that of a plain run."""

from __future__ import annotations

import pytest
from tests.unit.runtimes.query.conftest import same_rows

from hocket.query import Query
from hocket.runtimes.query.duckdb_data import DuckdbData

# By the key that closes the blocks within each query; what each was found to be split by, and what its batches give.
ORDERS, CUSTOMERS, PARTS = "orders.o_orderkey", "customer.c_custkey", "part.p_partkey"
SPLITS = {
    1: ("sampled", "rows of lineitem"), 2: ("rows", PARTS), 3: ("groups", ORDERS), 4: ("sampled", ORDERS),
    5: ("sampled", ORDERS), 6: ("sampled", "rows of lineitem"), 7: ("sampled", ORDERS), 8: ("sampled", ORDERS),
    9: ("sampled", ORDERS), 10: ("groups", CUSTOMERS), 11: ("at once", "needed in full"), 12: ("sampled", ORDERS),
    13: ("sampled", CUSTOMERS), 14: ("sampled", PARTS), 15: ("rows", "supplier"), 16: ("sampled", PARTS),
    17: ("sampled", PARTS), 18: ("groups", ORDERS), 19: ("sampled", "rows of lineitem"), 20: ("rows", "supplier"),
    21: ("sampled", ORDERS), 22: ("sampled", CUSTOMERS),
}  # fmt: skip


@pytest.mark.parametrize("number", SPLITS)
@pytest.mark.usefixtures("small_keys")
def test_a_query_is_split_and_ends_with_the_plain_answer(tpch: DuckdbData, number: int) -> None:
    (sql,) = tpch.connection.execute("SELECT query FROM tpch_queries() WHERE query_nr = ?", [number]).fetchone()
    query = Query(sql, tpch)
    mode, key = SPLITS[number]
    assert (query.mode.value if query.mode is not None else "at once") == mode, query.how
    assert key in query.how
    answers = list(query)
    before = {11: 0, 16: 1}.get(number, 5)  # COUNT(DISTINCT …) of query 16 is merged from all its values.
    assert [answer.is_exact for answer in answers] == [False] * before + [True]
    plain = tpch.connection.execute(sql)
    assert answers[-1].columns == tuple(column[0] for column in plain.description)
    assert same_rows(answers[-1].rows, plain.fetchall())
