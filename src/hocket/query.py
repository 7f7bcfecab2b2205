"""Aggregate queries that are answered from part of their data, with intervals, until the answer is exact.

    from hocket.query import Query

    for answer in Query("SELECT city, avg(price) FROM sales GROUP BY city", "data/"):
        print(answer.fraction, answer.rows, answer.half_widths)

It needs DuckDB and sqlglot (`pip install 'hocket[query]'`), and nothing else of Hocket but the grammar of criteria.
"""

from hocket.runtimes.query.progressive import Answer, Query
from hocket.runtimes.query.statement import QueryError

__all__ = ["Answer", "Query", "QueryError"]
