"""PostgreSQL in trouble: servers that are killed, sessions that are lost, answers that never come."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'hocket[postgresql]'")

from hocket.control.journal import JournalError, JournalLost, open_to_read  # noqa: E402
from hocket.control.journal.archive import archive_files  # noqa: E402
from hocket.control.journal.postgresql import PostgresqlJournal  # noqa: E402
from hocket.control.ports import Cycle, Header  # noqa: E402
from hocket.control.restore import restore  # noqa: E402
from hocket.model.event import JobSubmitted, OwnerSet  # noqa: E402
from hocket.model.job import Job, Owner  # noqa: E402
from hocket.policies.registry import bind  # noqa: E402
from hocket.service.compaction import CompactionRequest, Keep  # noqa: E402
from hocket.testing.postgresql import PostgresServer  # noqa: E402

HEADER = Header("fifo")


def cycle(number: int) -> Cycle:
    return Cycle(float(number), (JobSubmitted(float(number), Job(f"j{number}")),))


def held(url: str, patience_s: float = 60.0) -> PostgresqlJournal:
    return PostgresqlJournal(url, HEADER, goes_on=True, patience_s=patience_s)


def cut_off(server: PostgresServer, journal: PostgresqlJournal) -> None:
    """End the session of a journal, and wait until it is over."""
    assert journal._db is not None
    pid = journal._db.info.backend_pid
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(%s)", (pid,))
        await_true(db, f"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")


def await_true(db: Any, question: str) -> None:
    deadline_s = monotonic() + 120
    while db.execute(question).fetchone() != (True,):
        assert monotonic() < deadline_s, question


def test_a_holder_that_is_about_to_go_is_waited_for(database: str) -> None:
    """A controller is stopped and started again at once: the server sees later that the first is gone."""
    first = held(database)
    first.append(cycle(1))
    going = threading.Timer(0.3, first.close)
    going.start()
    second = held(database)
    going.join()
    second.append(cycle(2))
    second.close()
    assert numbers(database) == [1.0, 2.0]


def numbers(url: str) -> list[float]:
    journal = open_to_read(url)
    try:
        return [c.at_s for c in journal]
    finally:
        journal.close()


# -- servers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_server_that_went_and_came_back_is_found_again(server: PostgresServer, database: str, how: str) -> None:
    journal = held(database)
    journal.extend([cycle(1), cycle(2)])
    getattr(server, how)()
    server.start()
    journal.append(cycle(3))
    assert len(journal) == 3
    journal.close()
    assert numbers(database) == [1, 2, 3]


def test_a_server_that_is_away_is_waited_for(server: PostgresServer, database: str) -> None:
    journal = held(database)
    journal.append(cycle(1))
    server.kill()
    starting = threading.Timer(0.5, server.start)
    starting.start()
    journal.append(cycle(2))
    starting.join()
    journal.close()
    assert numbers(database) == [1, 2]


def test_a_server_that_stays_away_is_an_error_and_nothing_is_doubled_afterwards(
    server: PostgresServer, database: str
) -> None:
    journal = held(database, patience_s=0.3)
    journal.append(cycle(1))
    server.kill()
    with pytest.raises(JournalError) as found:
        journal.append(cycle(2))
    said = str(found.value)
    assert said.startswith(f"journal '{journal.name}' cannot be written: ")
    assert "\n" not in said
    with pytest.raises(JournalError, match="cannot be read"):
        journal.recover()
    server.start()
    assert journal.recover() == 1
    journal.append(cycle(2))
    journal.close()
    assert numbers(database) == [1, 2]


def test_no_server_at_all_is_refused_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(JournalError) as found:
        PostgresqlJournal(f"postgresql://me:secret@/db?host={tmp_path}", HEADER, goes_on=True)
    assert str(found.value).startswith(f"journal 'postgresql://me@{tmp_path}/db' cannot be opened: ")
    assert "\n" not in str(found.value)
    assert "secret" not in str(found.value)
    with pytest.raises(JournalError, match=r"^journal 'postgresql://…': the URL cannot be read$"):
        PostgresqlJournal("postgresql://me:secret@[there/db")


# -- sessions -----------------------------------------------------------------------------------------------


def test_a_lost_session_is_taken_up_again_when_no_other_came_in_between(server: PostgresServer, database: str) -> None:
    journal = held(database)
    journal.append(cycle(1))
    cut_off(server, journal)
    journal.append(cycle(2))
    cut_off(server, journal)
    journal.save(b"state")
    assert list(journal.saved()) == [(2, b"state")]
    with pytest.raises(JournalError, match="is held by"):
        held(database)
    journal.close()


@pytest.mark.parametrize("second_still_there", [True, False])
def test_a_journal_that_lost_the_lock_to_another_appends_no_more(
    server: PostgresServer, database: str, second_still_there: bool
) -> None:
    first = held(database)
    first.append(cycle(1))
    cut_off(server, first)
    second = held(database)
    second.append(cycle(2))
    if not second_still_there:
        second.close()
    for _ in range(2):
        with pytest.raises(JournalLost, match=f"it was taken over by the controller with pid {os.getpid()} "):
            first.append(cycle(2))
    with pytest.raises(JournalLost):
        first.recover()
    first.close()
    if second_still_there:
        second.append(cycle(3))
        second.close()
    assert numbers(database) == [1, 2, 3][: 2 + second_still_there]


def test_a_taker_waits_for_the_commit_under_way_and_then_ends_it(server: PostgresServer, database: str) -> None:
    """The epoch is read and kept in the very transaction that appends."""
    journal = held(database)
    with psycopg.connect(database) as other:
        other.execute("UPDATE hocket_writer SET epoch = epoch + 1")  # not committed yet
        appending: list[object] = []

        def append() -> None:
            try:
                appending.append(journal.append(cycle(1)))
            except JournalError as error:
                appending.append(error)

        thread = threading.Thread(target=append)
        thread.start()
        with psycopg.connect(server.url, autocommit=True) as look:
            await_true(look, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        other.commit()
        thread.join()
    assert isinstance(appending[0], JournalLost)
    journal.close()
    assert numbers(database) == []


def test_a_table_that_another_has_locked_is_refused_after_a_while(database: str) -> None:
    journal = held(database, patience_s=0.2)
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE hocket_cycle")
        with pytest.raises(JournalError, match="cannot be written: canceling statement due to lock timeout"):
            journal.append(cycle(1))
    assert journal.recover() == 0
    journal.append(cycle(1))
    journal.close()


def test_another_schema_is_another_store(server: PostgresServer, database: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE SCHEMA IF NOT EXISTS aside")
    first, second = held(database), held(f"{server.url}&options={quote('-csearch_path=aside')}")
    second.append(cycle(1))
    assert (len(first), len(second)) == (0, 1)
    first.close()
    second.close()


def test_a_run_does_not_overwrite_a_journal(database: str) -> None:
    held(database).close()
    with pytest.raises(JournalError, match="exists already; a run needs a new one"):
        PostgresqlJournal(database, HEADER)


# -- answers ------------------------------------------------------------------------------------------------


class Swallower:
    """Stands between a client and the server, and once told to lets nothing more come back, and hangs up."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.url = f"postgresql:///postgres?host={folder}&user=hocket"
        self.swallows = False
        self._to = str(server.folder / ".s.PGSQL.5432")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        self._ends = [self._listening]
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._to)
            self._ends += [client, server]
            self._begin(self._pass_on, client, server, False)
            self._begin(self._pass_on, server, client, True)

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        while data := source.recv(65536):
            if is_answer and self.swallows:  # The server has done what it was asked to.
                self.swallows = False
                break
            target.sendall(data)
        hang_up(source, target)

    def close(self) -> None:
        hang_up(*self._ends)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


def hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def between(server: PostgresServer) -> Iterator[Swallower]:
    folder = server.folder / "between"
    folder.mkdir()
    swallower = Swallower(server, folder)
    yield swallower
    swallower.close()
    (folder / ".s.PGSQL.5432").unlink()
    folder.rmdir()


def test_a_commit_whose_answer_was_lost_is_found_and_not_doubled(between: Swallower, database: str) -> None:
    journal = held(f"{between.url}&options={database.partition('options=')[2]}")
    journal.append(cycle(1))
    between.swallows = True
    journal.extend([cycle(2), cycle(3)])
    assert not between.swallows, "an answer was lost"
    journal.append(cycle(4))
    journal.close()
    assert numbers(database) == [1, 2, 3, 4]


# -- imports ------------------------------------------------------------------------------------------------


def test_the_driver_is_loaded_only_for_a_url_and_missed_in_words() -> None:
    program = """
import sys
import hocket.control.journal as j, hocket.control.restore
print("psycopg" in sys.modules)
sys.modules["psycopg"] = None
try:
    j.open_to_read("postgresql://there/db")
except j.JournalError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded, said = done.stdout.splitlines()
    assert loaded == "False"
    assert said.startswith("journal 'postgresql://…' needs psycopg (")
    assert said.endswith("): pip install 'hocket[postgresql]'")


def test_a_process_removes_old_cycles_for_the_controller_that_holds_the_journal(database: str, tmp_path: Path) -> None:
    journal = held(database)
    journal.extend(
        [Cycle(float(n), (OwnerSet(float(n), Owner(f"o{n % 3}", weight=float(n))),)) for n in range(1, 1501)]
    )
    request = CompactionRequest(database, journal.epoch, Keep(history_s=600.0, archive=str(tmp_path)), 1500.0)
    command = [sys.executable, "-m", "hocket.service.compaction"]
    done = subprocess.run(command, input=msgspec.json.encode(request), stdout=subprocess.PIPE, check=True)
    assert msgspec.json.decode(done.stdout)["cycles"] == 500  # The last 1,000 always stay.
    journal.append(cycle(1501))
    assert [c.at_s for c in journal.after(500)] == [float(n) for n in range(501, 1502)]
    journal.close()
    again = open_to_read(database)
    assert [c.at_s for c in again.after(500)][-1] == 1501.0
    (file,) = archive_files(tmp_path)
    assert (file.first, file.last) == (1, 500)
    restored = restore(again, bind(HEADER.policy, HEADER.params))
    again.close()
    assert {owner.id: owner.weight for owner in restored.state.owners.values()} == {"o0": 1500, "o1": 1498, "o2": 1499}
