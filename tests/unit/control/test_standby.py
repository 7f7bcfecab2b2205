"""Controllers of one journal in PostgreSQL: which holds it, whether that still runs, and when another may have it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'hocket[postgresql]'")

from hocket.control.journal import JournalAway, JournalError, JournalLost, standby_of  # noqa: E402
from hocket.control.journal.postgresql import PostgresqlJournal  # noqa: E402
from hocket.control.journal.postgresql_presence import EVERY_S  # noqa: E402
from hocket.control.journal.postgresql_standby import PostgresqlStandby, StillWatch  # noqa: E402
from hocket.control.ports import Cycle, Header  # noqa: E402
from hocket.testing.postgresql import PostgresServer  # noqa: E402

HERE, THERE, TOKEN = "http://here:1", "http://there:2", "digest"


def held(url: str) -> PostgresqlJournal:
    return PostgresqlJournal(url, Header("fifo"), goes_on=True, patience_s=60.0)


def awaited(holds: Callable[[], Any], within_s: float = 120.0) -> None:
    until_s = monotonic() + within_s
    while not holds():
        assert monotonic() < until_s
        sleep(0.02)


@pytest.fixture
def standby(database: str):
    made = PostgresqlStandby(database, THERE, TOKEN, takeover_s=1.0)
    yield made
    made.close()


def test_only_a_journal_in_postgresql_can_be_waited_for(tmp_path):
    with pytest.raises(JournalError, match="only a journal in PostgreSQL"):
        standby_of(tmp_path / "j.db", THERE, TOKEN, 1.0)


def test_a_journal_that_does_not_exist_yet_can_be_had(standby):
    assert standby.holder() == ""
    assert standby.controllers() == ()


def test_each_knows_where_the_other_is_called_and_the_journal_is_free_when_its_holder_ends(database, standby):
    journal = held(database)
    journal.others.advertise(HERE, TOKEN)
    awaited(lambda: journal.others.urls() == (HERE,))
    assert "the controller with pid" in standby.holder()
    awaited(lambda: journal.others.urls() == (HERE, THERE))
    assert standby.holder()
    assert standby.controllers() == (THERE, HERE)
    journal.close()
    awaited(lambda: standby.holder() == "")


def test_a_holder_that_stands_still_loses_the_journal_and_can_append_no_more(database, standby):
    journal = held(database)
    journal.others.advertise(HERE, TOKEN)
    awaited(lambda: journal.others.urls() == (HERE,))
    assert journal._beats is not None
    journal._beats.end()  # As if it were stopped; its sessions are open.
    began_s = monotonic()
    awaited(lambda: standby.holder() == "")
    assert monotonic() - began_s >= 1.0
    second = held(database)
    second.append(Cycle(1.0, ()))
    with pytest.raises(JournalLost, match="taken over by the controller with pid"):
        journal.append(Cycle(2.0, ()))
    assert "taken over" in journal.lost
    assert len(second) == 1
    second.close()
    journal.close()


def test_a_holder_that_runs_keeps_the_journal(database, standby):
    journal = held(database)
    until_s = monotonic() + 2.0
    while monotonic() < until_s:
        assert standby.holder()
        sleep(0.05)
    journal.append(Cycle(1.0, ()))
    journal.close()


def test_a_holder_of_an_older_version_which_tells_nothing_is_never_taken_for_one_that_stands_still(database, standby):
    journal = held(database)
    assert journal._beats is not None
    journal._beats.end()
    awaited(lambda: journal._beats._presence._db.closed)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("DELETE FROM hocket_controller")
    until_s = monotonic() + 2.0
    while monotonic() < until_s:
        assert standby.holder()
        sleep(0.05)
    journal.close()


def test_a_holder_learns_without_writing_that_another_has_the_journal(database):
    first = held(database)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("UPDATE hocket_writer SET epoch = epoch + 1")
    awaited(lambda: first.lost)
    first.close()


def test_a_holder_that_does_not_reach_the_server_is_not_certain_until_it_does(server: PostgresServer, database):
    journal = held(database)
    awaited(lambda: journal.others.unconfirmed_s() < EVERY_S)
    server.kill()
    awaited(lambda: journal.others.unconfirmed_s() > 4 * EVERY_S)
    server.start()
    awaited(lambda: journal.others.unconfirmed_s() < 2 * EVERY_S)
    assert not journal.lost
    journal.append(Cycle(1.0, ()))
    journal.close()


def test_a_database_that_does_not_answer_now_is_waited_for_and_a_wrong_one_is_not(server: PostgresServer, database):
    standby = PostgresqlStandby(database, THERE, TOKEN, takeover_s=1.0)
    server.kill()
    with pytest.raises(JournalAway, match="cannot be read"):
        standby.holder()
    with pytest.raises(JournalAway, match="cannot be opened"):
        PostgresqlJournal(database, Header("fifo"), goes_on=True, patience_s=2.0)
    server.start()
    assert standby.holder() == ""
    standby.close()
    wrong = PostgresqlStandby(database.replace("/postgres?", "/nothing?"), THERE, TOKEN, takeover_s=1.0)
    with pytest.raises(JournalError, match="does not exist") as refused:
        wrong.holder()
    assert not isinstance(refused.value, JournalAway)


def test_a_controller_with_another_token_is_told_so(database):
    journal = held(database)
    journal.others.advertise(HERE, TOKEN)
    awaited(lambda: HERE in journal.others.urls())
    other = PostgresqlStandby(database, THERE, "another", takeover_s=1.0)
    with pytest.raises(JournalError, match="has another token"):
        other.holder()
    other.close()
    journal.close()


def test_the_next_holder_has_the_notes_of_the_last(database):
    first = held(database)
    assert first.others.notes_before() == ""
    first.others.advertise(HERE, TOKEN)
    first.others.share_notes("six")
    awaited(lambda: HERE in first.others.urls())
    first.others.share_notes("seven")
    first.close()
    again = PostgresqlStandby(database, HERE, TOKEN, takeover_s=1.0)  # Its own address, as after a restart.
    awaited(lambda: again.holder() == "")
    again.close()
    second = held(database)
    assert second.others.notes_before() == "seven"
    second.close()


def test_time_in_which_the_watcher_was_suspended_does_not_count():
    watch = StillWatch()
    assert watch.still_s(1, 100.0) == 0.0
    assert watch.still_s(1, 100.0 + EVERY_S) == EVERY_S
    assert watch.still_s(1, 500.0) == 5 * EVERY_S
    assert watch.still_s(2, 501.0) == 0.0
