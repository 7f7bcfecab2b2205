"""Queries of TPC-H with a goal: answered from as much of the data as the goal needs.

    hocket query prepare tpch:0.1 --out tpch.duckdb          # needs pip install duckdb-extension-tpch
    python examples/query_tpch.py 6 --data tpch.duckdb --until "acc >= 95%"
    hocket submit --query "$(python examples/query_tpch.py 5 --sql)" --data tpch.duckdb --model q5 \\
        --until "acc >= 90% within 10m" --threads 1-2

The first prints what is known after each batch. The last runs the same as a job: under `hocket up --policy rotary` it
has its cores for a running epoch at a time, beside training jobs, and waits in memory when others go first.
"""

import argparse
from decimal import Decimal

from hocket.query import Query

QUERIES = {
    "1": """
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice * (1 - l_discount)) AS price,
    avg(l_discount) AS discount, count(*) AS orders
FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY 1, 2 ORDER BY 1, 2""",
    "5": """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
    AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
    AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
GROUP BY n_name ORDER BY revenue DESC""",
    "6": """
SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
    AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "12": """
SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS urgent,
    count(*) AS orders
FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
    AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
    AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
GROUP BY l_shipmode ORDER BY l_shipmode""",
    "14": """
SELECT 100.0 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
    / sum(l_extendedprice * (1 - l_discount)) AS promoted
FROM lineitem, part WHERE l_partkey = p_partkey
    AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
}


def main() -> None:
    """Ask one of them, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("query", choices=QUERIES, help="its number in TPC-H")
    parser.add_argument("--data", default="tpch:0.1", help="a folder of Parquet files, a DuckDB file, or tpch:SCALE")
    parser.add_argument("--until", default="acc >= 95%")
    parser.add_argument("--sql", action="store_true", help="print the query instead, for `hocket submit --query`")
    chosen = parser.parse_args()
    sql = QUERIES[chosen.query].strip()
    if chosen.sql:
        print(sql)
        return
    for answer in Query(sql, chosen.data, until=chosen.until):
        known = "" if answer.accuracy is None else f": acc >= {answer.accuracy:.1%}"
        print(f"{answer.fraction:.0%} of the data{known}")
    for row in answer.rows:
        print("  " + "  ".join(f"{value:,.2f}" if isinstance(value, float | Decimal) else str(value) for value in row))


if __name__ == "__main__":
    main()
