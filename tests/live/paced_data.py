"""Data of which a query takes a minute, most of which it sleeps: what a test waits for costs no core."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

# With one thread, a second for the first batch and a minute for all; half of that with two.
PACED = "SELECT shop, count(*) AS n, sum(sqrt(price)) AS total FROM sold WHERE paced GROUP BY shop ORDER BY shop"
SOLD = 81_920  # rows of each of three shops; DuckDB makes two parts of them, and a thread without one would not sleep


def write_paced_data(folder: Path) -> Path:
    """A file with the table `sold`; a query that does not ask for its column `paced` is as fast as any."""
    import duckdb

    path = folder / "data.duckdb"
    with closing(duckdb.connect(str(path))) as db:
        # It is computed when it is read, and when a row is inserted.
        paced = "paced BOOLEAN AS (sleep_ms(ms) IS NULL)"
        db.execute(f"CREATE TABLE sold(shop BIGINT, price DOUBLE, ms BIGINT, {paced})")
        db.execute(f"INSERT INTO sold SELECT i % 3, (i * 37 % 1000)::DOUBLE, 0 FROM range({3 * SOLD}) r(i)")
        db.execute("UPDATE sold SET ms = 1 WHERE rowid % 4 = 0")
    return path
