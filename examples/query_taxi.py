"""How generous are riders, by borough? An answer from part of the trips, with its error, before all are read.

    python examples/query_taxi.py [--data taxi-data] [--trips N] [--until "acc >= 96%"]

The trips are made up, as a city's records look: fares are skewed, cash tips are not known (NULL), some trips were
charged back (negative fares), and zones have names in a table of their own. They are written to a folder, as Parquet
and CSV, unless it is there: `hocket query "SELECT avg(fare) FROM trips" --data taxi-data` asks it something else.
"""

import argparse
from pathlib import Path

import duckdb

from hocket.query import Query

TRIPS = """
SELECT i AS trip, 1 + hash(i, 'zone') % 40 AS zone, round(1 + ride, 2) AS km,
    round((3 + 2 * ride) * CASE WHEN draw(i, 'charged back') < 0.01 THEN -1 ELSE 1 END, 2) AS fare,
    CASE WHEN draw(i, 'cash') > 0.4 THEN round((3 + 2 * ride) * (0.3 - zone % 4 / 20) * draw(i, 'tip'), 2) END AS tip
FROM (SELECT i, exp(draw(i, 'km') * 3) AS ride FROM range($trips) AS r(i))
"""
ZONES = "SELECT i AS zone, ['Harbour', 'Hill', 'Old Town', 'Airport'][1 + i % 4] AS borough FROM range(1, 41) AS r(i)"
QUERY = """
SELECT borough, count(*) AS trips, avg(fare) AS fare, sum(tip) / sum(fare) FILTER (WHERE tip IS NOT NULL) AS tipped
FROM trips JOIN zones ON trips.zone = zones.zone WHERE fare > 0
GROUP BY borough ORDER BY tipped DESC
"""


def write_data(folder: Path, trips: int) -> None:
    """A folder with a table of trips and one of zones."""
    folder.mkdir(parents=True)
    db = duckdb.connect()
    db.execute("CREATE MACRO draw(i, what) AS (hash(i, what) % 1000000) / 1000000")  # the same for all who run it
    db.execute(f"COPY ({TRIPS.replace('$trips', str(trips))}) TO '{folder}/trips.parquet'")
    db.execute(f"COPY ({ZONES}) TO '{folder}/zones.csv'")


def main() -> None:
    """Write the data, and ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("taxi-data"), help="the folder of the trips")
    parser.add_argument("--trips", type=int, default=300_000)
    parser.add_argument("--until", default="acc >= 96%")
    chosen = parser.parse_args()
    if not chosen.data.exists():
        write_data(chosen.data, chosen.trips)
    for answer in Query(QUERY, chosen.data, until=chosen.until):
        known = "" if answer.accuracy is None else f": acc >= {answer.accuracy:.1%}"
        print(f"{answer.fraction:.0%} of the trips{known}")
    for row, half_widths in zip(answer.rows, answer.half_widths, strict=True):
        print(f"  {row[0]:9} tips {row[3]:.2%} ± {half_widths[3] or 0.0:.2%} of the fare")


if __name__ == "__main__":
    main()
