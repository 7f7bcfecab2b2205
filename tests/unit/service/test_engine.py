"""The engine when its journal cannot be written: it says so, accepts nothing, loses nothing, and goes on."""

import sqlite3

import pytest

from hocket.agent.protocol import Hello
from hocket.control.journal import JournalError, JournalHeld
from hocket.model.event import JobSubmitted
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.policies import find
from hocket.service.engine import Engine, Unavailable


def submit(engine, name):
    return engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, Job(name, command=("true",)))])


@pytest.mark.slow
def test_a_journal_that_cannot_be_written_is_said_and_nothing_is_accepted_until_it_can(engine, tmp_path):
    submit(engine, "before").result(60)
    in_the_way = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    in_the_way.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"journal\.db"):
        submit(engine, "during").result(120)
    assert "journal.db" in engine.trouble
    in_the_way.execute("ROLLBACK")
    in_the_way.close()
    submit(engine, "after").result(60)
    assert not engine.trouble
    assert [view.job.id for view in engine.snapshot.jobs.values()] == ["before", "after"]


@pytest.mark.usefixtures("engine")
def test_a_second_engine_on_one_journal_is_refused(tmp_path):
    with pytest.raises(JournalHeld, match=r"journal\.db"):
        Engine(str(tmp_path / "journal.db"), find("las").bound())


def test_another_policy_on_a_journal_is_refused(tmp_path):
    path = str(tmp_path / "other.db")
    Engine(path, find("las").bound()).close()
    with pytest.raises(JournalError, match="'las'"):
        Engine(path, find("fifo").bound())


def test_all_that_was_accepted_is_there_again(tmp_path):
    path = str(tmp_path / "other.db")
    first = Engine(path, find("fifo").bound())
    first.start()
    first.executor.post(first.executor.hello(Hello(Node("here", 1), "127.0.0.1"))).result(60)
    for n in range(50):
        submit(first, f"j{n}").result(60)
    first.close()
    again = Engine(path, find("fifo").bound())
    assert list(again.catalogue.records) == [f"j{n}" for n in range(50)]
    assert [view.job.id for view in again.snapshot.jobs.values()] == [f"j{n}" for n in range(50)]
    again.close()


def test_a_policy_that_raises_wastes_a_cycle_and_is_said_in_the_log(engine, caplog):
    def decide(snapshot):
        if "bad" in snapshot.jobs:
            raise ZeroDivisionError("a bug of a policy")
        return real(snapshot)

    real, engine._controller.decide = engine._controller.decide, decide
    submit(engine, "before").result(60)
    submit(engine, "bad").result(60)
    submit(engine, "after").result(60)
    assert not engine.over.is_set()
    assert [view.job.id for view in engine.snapshot.jobs.values()] == ["before", "bad", "after"]
    assert "ZeroDivisionError: a bug of a policy" in caplog.text
    assert not engine._controller.decision_s, "nobody reads them"
