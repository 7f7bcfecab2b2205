"""The state of a query on disk: a run that goes on from it ends with the same answers, however the last one ended."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace
from tests.unit.runtimes.query.conftest import same_rows

from hocket.model.view import Tier
from hocket.query import Query, QueryError
from hocket.runtimes.query import query_state
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import UNITS, DuckdbData
from hocket.runtimes.query.progressive import ENDS
from hocket.runtimes.query.query_state import FILE, CountedBatch, check_ledger

SAMPLED = (
    "SELECT shop, count(*) AS n, sum(big) AS total, avg(price) AS price, stddev(price) AS spread, "
    "count(DISTINCT kind) AS kinds, max(day) AS last FROM sold GROUP BY shop ORDER BY shop"
)
COLLECTED = "SELECT id, sum(price) AS price, max(big) AS big FROM sold GROUP BY id ORDER BY price DESC, id LIMIT 50"
ONCE = "SELECT shop, sum(price) AS price FROM sold WHERE price > (SELECT avg(cost) FROM costs) GROUP BY 1 ORDER BY 1"

DISTINCT = "SELECT shop, count(DISTINCT kind) AS kinds FROM sold GROUP BY 1 ORDER BY 1"  # all at once after one answer


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sales")
    db = duckdb.connect()
    db.execute(
        f"COPY (SELECT i % 3000 AS id, i % 5 AS shop, (i * 37 % 1000)::DECIMAL(12, 2) AS price, i % 11 AS kind, "
        f"i * 1000000007 AS big, DATE '2026-01-01' + (i % 300)::INT AS day FROM range(20000) r(i)) "
        f"TO '{folder}/sold.parquet'"
    )
    db.execute(f"COPY (SELECT i AS cost FROM range(900) r(i)) TO '{folder}/costs.parquet'")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def data(sales: Path, folder: Path) -> Iterator[DuckdbData]:
    found = open_data(sales, state=folder)
    yield found
    found.connection.close()


pytestmark = pytest.mark.usefixtures("small_keys")


@pytest.mark.parametrize("sql", [SAMPLED, COLLECTED, ONCE, DISTINCT], ids=["sampled", "collected", "once", "distinct"])
def test_a_query_that_is_ended_after_each_batch_gives_the_answers_of_one_that_is_not(
    data: DuckdbData, folder: Path, sql: str
) -> None:
    whole = list(Query(sql, data))
    assert len(whole) == (2 if sql == DISTINCT else len(ENDS))
    answers = []
    for _ in whole:
        query = Query(sql, data, state=folder)
        for answer in query:
            if not answers or answer.fraction > answers[-1].fraction:
                answers.append(answer)
                break
            assert same_rows(answer.rows, answers[-1].rows)  # What was known is said again at once.
        query.close()
    assert [a.fraction for a in answers] == [a.fraction for a in whole]
    for ended, plain in zip(answers, whole, strict=True):
        assert same_rows(ended.rows, plain.rows)
        # Spreads are small differences of large numbers, which are added up in another order each time.
        assert same_rows(ended.half_widths, plain.half_widths, rel_tol=1e-5)
    assert answers[-1].elapsed_s > answers[0].elapsed_s


def test_an_exact_answer_leaves_no_state_and_an_early_stop_does(data: DuckdbData, folder: Path) -> None:
    sql = "SELECT shop, sum(price) AS price FROM sold GROUP BY shop ORDER BY shop"
    early = Query(sql, data, state=folder, until="acc >= 1%")
    assert not list(early)[-1].is_exact
    early.close()
    assert os.listdir(folder) == [FILE]
    exact = Query(sql, data, state=folder)  # The goal is not part of the state: a stricter one goes on from there.
    fractions = [answer.fraction for answer in exact]
    assert fractions[0] == early.ledger[-1].hi / UNITS + 1 / UNITS
    assert fractions[-1] == 1.0
    assert os.listdir(folder) == []


@pytest.mark.parametrize("until", ["", "acc >= 99.9999%"])
def test_the_last_answer_is_kept_until_it_was_taken(data: DuckdbData, folder: Path, until: str) -> None:
    sql = "SELECT shop, sum(price) AS price FROM sold GROUP BY shop ORDER BY shop"
    query = Query(sql, data, state=folder, until=until)
    last = list(islice(query, len(ENDS)))[-1]  # The process is killed before it asks for more.
    assert last.is_exact
    query.close()
    assert os.listdir(folder) == [FILE]
    again = Query(sql, data, state=folder, until=until)
    (answer,) = again
    assert answer.is_exact
    assert same_rows(answer.rows, last.rows)
    assert os.listdir(folder) == []


def test_a_state_of_another_query_other_data_or_another_format_is_refused(
    data: DuckdbData, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(sql: str, on: DuckdbData) -> None:
        query = Query(sql, on, state=folder)
        try:
            next(iter(query))
        finally:
            query.close()

    begin(SAMPLED, data)
    for sql, on, said in (
        (COLLECTED, data, "is of another query: SELECT sold.shop"),
        (SAMPLED, _reseeded(data), "is of other data"),
    ):
        with pytest.raises(QueryError, match=said) as refused:
            begin(sql, on)
        assert "\n" not in str(refused.value)
    data.seed = 0
    monkeypatch.setattr(query_state, "FORMAT", "2")
    with pytest.raises(QueryError, match="has format 1, and must have 2"):
        begin(SAMPLED, data)
    (folder / FILE).write_bytes(b"no state at all" * 1000)
    with pytest.raises(QueryError, match=r"cannot be read: .*remove it to begin again"):
        begin(SAMPLED, data)


def _reseeded(data: DuckdbData) -> DuckdbData:
    data.seed = 1
    return data


def test_a_folder_is_for_one_query_at_a_time(data: DuckdbData, folder: Path) -> None:
    first = Query(SAMPLED, data, state=folder)
    with pytest.raises(QueryError, match="is in use by another query"):
        Query(SAMPLED, data, state=folder)
    first.close()
    Query(SAMPLED, data, state=folder).close()


@pytest.mark.parametrize("at", ["replace", "fsync"])
def test_what_is_killed_while_it_saves_goes_on_from_the_state_before(
    data: DuckdbData, folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    class Killed(BaseException):
        pass

    query = Query(SAMPLED, data, state=folder)
    answers = iter(query)
    next(answers)
    with monkeypatch.context() as patched:

        def die(*_args: object) -> None:
            raise Killed

        patched.setattr(query_state.os, at, die)
        with pytest.raises(Killed):
            next(answers)
    query.close()
    assert sorted(os.listdir(folder)) == [FILE, f"{FILE}.part"]
    again = Query(SAMPLED, data, state=folder)
    found = list(again)
    assert [a.fraction for a in found] == [end / UNITS for end in ENDS]
    assert same_rows(found[-1].rows, data.connection.execute(SAMPLED).fetchall())


def test_a_full_disk_keeps_the_state_before_and_is_told_in_one_line(data: DuckdbData, folder: Path) -> None:
    query = Query(SAMPLED, data, state=folder)
    answers = iter(query)
    next(answers)
    before = (folder / FILE).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(QueryError, match=r"state cannot be kept in .*; the one before it is still there") as full:
            next(answers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(full.value)
    assert os.listdir(folder) == [FILE]
    assert (folder / FILE).read_bytes() == before
    query.close()
    again = open_data_of(data, folder)
    found = list(Query(SAMPLED, again, state=folder))
    assert len(found) == len(ENDS)
    assert same_rows(found[-1].rows, again.connection.execute(SAMPLED).fetchall())
    again.connection.close()


def open_data_of(data: DuckdbData, folder: Path) -> DuckdbData:
    return open_data(next(iter(data.files)).parent, state=folder)


def test_memory_that_is_too_small_is_told_in_one_line(sales: Path) -> None:
    query = Query("SELECT id, list(big) AS all_of_them FROM sold GROUP BY id ORDER BY id", sales)
    query.set_resources(1, 1.0)
    with pytest.raises(QueryError, match=r"give it more memory \(--memory\)") as refused:
        list(query)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ledger", "said"),
    [
        ([(0, 15, 2), (32, 63, 1)], "units from 16 on were lost"),
        ([(0, 15, 2), (0, 15, 1)], "units from 0 on were counted twice"),
        ([(0, 15, 3), (16, 510, 0)], "it ends at unit 511 of 1024"),
        ([(0, 15, 2), (16, 1023, 2)], "the state has 3 rows, and the ledger of batches 4"),
    ],
)
def test_the_ledger_shows_a_batch_that_is_lost_or_counted_twice(ledger: list[tuple[int, int, int]], said: str) -> None:
    db = duckdb.connect()
    db.execute(f"CREATE TEMP TABLE {query_state.STATE} AS SELECT 1 FROM range(3)")
    with pytest.raises(QueryError, match=said):
        check_ledger(db, [CountedBatch(lo, hi, rows, 0.1) for lo, hi, rows in ledger], UNITS)
    check_ledger(db, [CountedBatch(0, 255, 2, 0.1), CountedBatch(256, 1023, 1, 0.1)], UNITS)


def test_a_state_that_is_cheap_to_redo_is_not_written_unless_every_batch_is_to_be(
    data: DuckdbData, folder: Path
) -> None:
    rarely = Query(SAMPLED, data, state=folder, interrupted_every_s=1e9)
    next(iter(rarely))
    assert os.listdir(folder) == []
    (batch,) = rarely.ledger
    rarely.ledger = (replace(batch, took_s=0.001),)
    assert rarely.leave() is Tier.NONE
    assert os.listdir(folder) == []
    rarely.ledger = (replace(batch, took_s=100.0),)
    assert rarely.leave() is Tier.DISK
    assert os.listdir(folder) == [FILE]
    rarely.close()
    os.unlink(folder / FILE)
    always = Query(SAMPLED, data, state=folder)
    next(iter(always))
    assert os.listdir(folder) == [FILE]
    always.close()


def test_threads_change_between_batches_and_the_answer_does_not(data: DuckdbData) -> None:
    query = Query(SAMPLED, data)
    answers = []
    for n, answer in enumerate(query):
        answers.append(answer)
        query.set_resources(1 + n % 2, 500.0)
        assert data.connection.execute("SELECT current_setting('threads')").fetchone() == (1 + n % 2,)
    assert same_rows(answers[-1].rows, data.connection.execute(SAMPLED).fetchall())
