"""A query as the process of a job: what it writes, reports and heeds."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")

import hocket  # noqa: E402
from hocket.cli import query_job  # noqa: E402
from hocket.cli.query_job import QueryJob  # noqa: E402
from hocket.query import Query, QueryError  # noqa: E402
from hocket.runtimes.query.query_state import FILE  # noqa: E402

SQL = "SELECT shop, sum(price) AS price FROM sold GROUP BY shop ORDER BY shop"


@pytest.fixture
def sold(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "sold.parquet"
    path.parent.mkdir()
    rows = "SELECT i % 3 AS shop, (i * 37 % 1000)::DOUBLE AS price FROM range(20000) r(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{path}'")
    return path.parent


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        hocket, "report", lambda epoch=None, **said: found.append({"epoch": epoch, **said}), raising=False
    )
    return found


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGTSTP, signal.SIGCONT)}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


class Place:
    """The files of a run."""

    def __init__(self, folder: Path) -> None:
        self.answer, self.resources, self.state = folder / "answer.json", folder / "resources.json", folder / "saved"
        self.has(size=1)

    def has(self, **said: Any) -> None:
        self.resources.write_text(json.dumps(said))

    def job(self, attempt: int = 1) -> QueryJob:
        env = {
            "HOCKET_ANSWER": str(self.answer), "HOCKET_RESOURCES": str(self.resources),
            "HOCKET_CHECKPOINT_DIR": str(self.state), "HOCKET_ATTEMPT": str(attempt),
        }  # fmt: skip
        found = QueryJob.of(env)
        assert found is not None
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_outside_of_a_job_there_is_none() -> None:
    assert QueryJob.of({"HOCKET_JOB": "a", "HOCKET_CHECKPOINT_DIR": "/x"}) is None


def test_every_batch_is_reported_and_the_answer_is_written(
    place: Place, sold: Path, reports: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert place.job().run(Query(SQL, sold)) == 0
    answer = json.loads(place.answer.read_text())
    assert answer["exact"]
    assert [row[0] for row in answer["rows"]] == [0, 1, 2]
    assert [(r["epoch"], r["step"]) for r in reports] == [(n, n) for n in range(1, 7)]
    assert [r["fraction"] for r in reports] == [1 / 64, 1 / 16, 1 / 8, 0.25, 0.5, 1.0]
    assert reports[-1]["acc"] == 1.0
    assert reports[-1]["rows_read"] == 20000
    assert reports[0]["half_width"] > 0
    assert "batch 6: exact" in capfd.readouterr().out


def test_a_running_epoch_of_so_many_batches_is_honoured(
    place: Place, sold: Path, reports: list[dict[str, Any]]
) -> None:
    place.has(size=1, epoch_batches=2)
    place.job().run(Query(SQL, sold))
    assert [r["epoch"] for r in reports] == [None, 2, None, 4, None, 6]
    assert [r["step"] for r in reports] == [1, 2, 3, 4, 5, 6]


def test_a_running_epoch_of_so_many_seconds_is_honoured(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.has(size=1, epoch_s=25.0)
    times = iter(range(0, 1000, 10))
    monkeypatch.setattr(query_job, "monotonic", lambda: float(next(times)))
    place.job().run(Query(SQL, sold))
    assert [r["epoch"] for r in reports][:4] == [None, None, 3, None]


def test_threads_and_memory_are_those_of_the_present_file(place: Place, sold: Path) -> None:
    query, seen = Query(SQL, sold), []
    job = place.job()

    def report(_epoch: Any, **said: Any) -> None:
        threads = query.data.connection.execute("SELECT current_setting('threads')").fetchone()
        seen.append(threads[0] if threads else None)
        place.has(size=1 + said["step"] % 3, mem_mib=1000.0)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hocket, "report", report, raising=False)
        job.run(query)
    assert seen == [1, 2, 3, 1, 2, 3]
    limit = query.data.connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert limit == ("800.0 MiB",)


def test_a_job_that_is_asked_to_leave_keeps_its_state_and_the_next_attempt_goes_on(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(epoch: Any, **said: Any) -> None:
        reports.append({"epoch": epoch, **said})
        if said["step"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            assert job._asked_to_leave.wait(60)

    monkeypatch.setattr(hocket, "report", report, raising=False)
    job = place.job()
    query = Query(SQL, sold, state=place.state)
    assert job.run(query) == 143
    query.close()
    assert os.listdir(place.state) == [FILE]
    monkeypatch.setattr(hocket, "report", lambda _epoch=None, **said: reports.append(said))
    again = Query(SQL, sold, state=place.state)
    assert place.job(attempt=2).run(again) == 0
    assert [r["step"] for r in reports] == [1, 2, 3, 3, 4, 5, 6]


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Called instead of stopping this process: how many batches each stop found counted."""
    found: list[int] = []
    monkeypatch.setattr(query_job, "_stop", lambda: found.append(-1))
    return found


def asks(number: signal.Signals, after: int, event: threading.Event, reports: list[dict[str, Any]]) -> Any:
    """A stand-in for `hocket.report` that signals this process once, after so many batches."""

    def report(epoch: Any, **said: Any) -> None:
        reports.append({"epoch": epoch, **said})
        if said["step"] == after and len(reports) == after:
            os.kill(os.getpid(), number)
            assert event.wait(60)

    return report


def test_a_job_that_is_asked_to_suspend_stops_after_its_batch_and_goes_on_in_the_same_process(
    place: Place, sold: Path, reports: list[dict[str, Any]], stops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, query = place.job(), Query(SQL, sold, state=place.state, interrupted_every_s=1e9)

    def stop() -> None:
        stops.append(len(query.ledger))
        place.has(size=2)  # as its agent says when it goes on

    monkeypatch.setattr(query_job, "_stop", stop)
    monkeypatch.setattr(hocket, "report", asks(signal.SIGTSTP, 3, job._asked_to_suspend, reports), raising=False)
    assert job.run(query) == 0
    assert stops == [3]
    assert [r["step"] for r in reports] == [1, 2, 3, 4, 5, 6]
    assert reports[-1]["process_mib"] > 10
    threads = query.data.connection.execute("SELECT current_setting('threads')").fetchone()
    assert threads == (2,)
    assert not os.listdir(place.state)  # Nothing was worth writing.


def test_what_may_be_lost_while_it_is_suspended_is_written_first(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, query = place.job(), Query(SQL, sold, state=place.state, interrupted_every_s=1e9)
    files: list[list[str]] = []
    monkeypatch.setattr(query_job, "_stop", lambda: files.append(os.listdir(place.state)))
    monkeypatch.setattr(hocket, "report", asks(signal.SIGTSTP, 3, job._asked_to_suspend, reports), raising=False)
    query._interrupted_every_s = 1e-3  # It is certain to be lost.
    monkeypatch.setattr(query, "_is_kept", lambda _done: False)
    monkeypatch.setattr("hocket.runtimes.query.progressive._SYNC_S", 0.0)
    assert job.run(query) == 0
    assert files == [[FILE]]


def test_the_time_in_which_it_is_suspended_is_none_of_the_query(sold: Path) -> None:
    query = Query(SQL, sold)
    answers = iter(query)
    first = next(answers).elapsed_s
    query.was_suspended(-1000.0)  # as if the clock had gone on by so much
    assert next(answers).elapsed_s >= first + 1000.0
    query.was_suspended(1000.0)
    assert next(answers).elapsed_s < first + 1000.0


def test_a_job_stops_amid_a_batch_that_takes_too_long_and_loses_nothing(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_job, "_FINISHING_S", 0.0)
    query, job = Query(SQL, sold, state=place.state), place.job()
    add, stopped = query._answers.add, threading.Event()  # type: ignore[union-attr]

    def slow(lo: int, hi: int) -> int:
        if len(reports) == 1:
            os.kill(os.getpid(), signal.SIGTSTP)
            assert stopped.wait(60)  # It takes until the process was stopped.
        return add(lo, hi)

    monkeypatch.setattr(query_job, "_stop", stopped.set)
    monkeypatch.setattr(query._answers, "add", slow)
    assert job.run(query) == 0
    assert [r["step"] for r in reports] == [1, 2, 3, 4, 5, 6]


def test_a_job_that_is_asked_to_leave_while_it_is_suspended_leaves(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, query = place.job(), Query(SQL, sold, state=place.state, interrupted_every_s=1e9)
    monkeypatch.setattr(query_job, "_stop", lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(hocket, "report", asks(signal.SIGTSTP, 2, job._asked_to_suspend, reports), raising=False)
    place.has(size=1, keep="disk")
    assert job.run(query) == 143
    assert [r["step"] for r in reports] == [1, 2]
    assert os.listdir(place.state) == [FILE]


@pytest.mark.parametrize(("keep", "files"), [("disk", [FILE]), ("none", [])])
def test_where_its_state_is_kept_may_be_told(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, keep: str, files: Any
) -> None:
    job, query = place.job(), Query(SQL, sold, state=place.state, interrupted_every_s=1e9)
    place.has(size=1, keep=keep)
    monkeypatch.setattr(hocket, "report", asks(signal.SIGTERM, 2, job._asked_to_leave, reports), raising=False)
    assert job.run(query) == 143
    assert os.listdir(place.state) == files


class LateEvent(threading.Event):
    """One that is not seen the first times that it is looked at."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._calls = calls

    def is_set(self) -> bool:
        self._calls -= 1
        return self._calls < 0 and super().is_set()


def test_a_batch_that_takes_too_long_is_given_up_when_the_job_shall_leave(
    place: Place, sold: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_job, "_FINISHING_S", 0.0)
    query = Query(SQL, sold, state=place.state)
    add = query._answers.add  # type: ignore[union-attr]

    def slow(lo: int, hi: int) -> int:
        if lo:
            query.data.connection.execute(
                "SELECT count(*) FROM range(10000000) a, range(100000) b WHERE hash(a.range + b.range) = 1"
            )
        return add(lo, hi)

    def report(_epoch: Any, **said: Any) -> None:
        reports.append(said)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(query._answers, "add", slow)
    monkeypatch.setattr(hocket, "report", report, raising=False)
    # It is asked to leave after the first batch, as if that had come a moment later: while the second is under way.
    job = place.job()
    monkeypatch.setattr(job, "_asked_to_leave", LateEvent(calls=1))
    assert job.run(query) == 143
    assert [r["step"] for r in reports] == [1]
    assert len(query.ledger) == 1


def test_a_query_that_fails_by_itself_is_an_error(place: Place, sold: Path) -> None:
    query = Query("SELECT shop, sum(error('no')::INT) AS x FROM sold GROUP BY shop", sold)
    with pytest.raises(QueryError, match="the query failed"):
        place.job().run(query)
