"""A running controller removes old cycles from its journal, by a process of its own; nothing of its jobs is lost."""

import logging
import time
from contextlib import closing

import pytest

from hocket.agent.protocol import Hello
from hocket.control.journal import SqliteJournal
from hocket.control.journal.history import open_history
from hocket.control.ports import Cycle, Header
from hocket.executors.agents.executor import agents
from hocket.model.event import JobAsked, JobRequest, JobSubmitted, OwnerSet
from hocket.model.job import Job, Owner
from hocket.model.resources import Node
from hocket.policies import find
from hocket.service import compaction
from hocket.service.compaction import EVERYTHING, Keep, compact
from hocket.service.engine import Engine
from hocket.service.intake import Intake, read_submitted_specs
from hocket.service.owners import Owners
from hocket.service.retention import Retention
from hocket.service.secret_store import SecretStore


def engine_on(folder):
    found = Engine(str(folder / "journal.db"), agents(300.0), find("fifo").bound(), catalogue=folder / "c.db")
    found.start()
    found.executor.post(found.executor.hello(Hello(Node("here", 1), "127.0.0.1"))).result(60)
    return found


def old_journal(folder):
    """More cycles than are always kept."""
    with closing(
        SqliteJournal(folder / "journal.db", Header("fifo", find("fifo").bound().settings, (), 0, "live"))
    ) as j:
        waits = Cycle(1000.0, (JobSubmitted(1000.0, Job("waits", command=("true",))),))
        j.extend([waits, *(Cycle(1000.0 + n, (OwnerSet(1000.0 + n, Owner(f"o{n % 3}")),)) for n in range(1, 1500))])


def ended_job(engine, name):
    engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, Job(name, command=("true",)))]).result(60)
    # On no node, as its order is not confirmed: it is ended by its user before it runs.
    engine.executor.post(lambda _state, now_s: [JobAsked(now_s, name, JobRequest.PAUSE)]).result(60)
    engine.executor.post(lambda _state, now_s: [JobAsked(now_s, name, JobRequest.STOP)]).result(60)


def fill(engine, count):
    """Some cycles."""
    for n in range(count):
        engine.executor.post(lambda _state, now_s, n=n: [OwnerSet(now_s, Owner(f"o{n}"))]).result(60)


def begins(folder):
    with closing(SqliteJournal(folder / "journal.db")) as journal:
        beginning = journal.beginning()
        return 0 if beginning is None else beginning.number


def test_a_controller_removes_cycles_while_it_runs(tmp_path, caplog):
    caplog.set_level(logging.INFO, "hocket.service")
    old_journal(tmp_path)
    engine = engine_on(tmp_path)
    keep = Keep(history_s=1.0, archive=str(tmp_path / "journal-archive"))
    later = Retention(str(tmp_path / "journal.db"), engine.journal, keep, engine.now_s, first_s=0.0, every_s=0.05)
    later.start()
    until = time.monotonic() + 120
    while "were removed from the journal, to" not in caplog.text:
        assert time.monotonic() < until, caplog.text
        submit(engine, f"j{time.monotonic_ns()}").result(60)  # which goes on meanwhile
        time.sleep(0.02)
    later.close()
    last = len(engine.journal)
    engine.close()
    assert begins(tmp_path) > 100
    with closing(open_history(tmp_path / "journal.db", everything=True)) as history:
        assert len(history) == last == sum(1 for _cycle in history)
    (tmp_path / "c.db").unlink()  # as after an upgrade
    again = engine_on(tmp_path)
    assert "waits" in again.snapshot.jobs
    assert again.catalogue.get("waits").number == 1
    again.close()


def submit(engine, name):
    return engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, Job(name, command=("true",)))])


def test_nothing_is_looked_at_where_everything_is_kept(tmp_path):
    engine = engine_on(tmp_path)
    retention = Retention(str(tmp_path / "journal.db"), engine.journal, EVERYTHING, engine.now_s, first_s=0.0)
    retention.start()
    assert not retention._thread.is_alive()
    retention.close()
    engine.close()


def test_a_compaction_that_fails_is_said_and_tried_again(tmp_path, caplog):
    old_journal(tmp_path)
    engine = engine_on(tmp_path)
    (tmp_path / "file").write_text("in the way")
    keep = Keep(history_s=1.0, archive=str(tmp_path / "file"))
    retention = Retention(str(tmp_path / "journal.db"), engine.journal, keep, engine.now_s, first_s=0.0, every_s=0.05)
    retention.start()
    until = time.monotonic() + 120
    while caplog.text.count("old cycles were not removed from the journal: archive") < 2:
        assert time.monotonic() < until, caplog.text
        time.sleep(0.01)
    retention.close()
    engine.close()
    assert begins(tmp_path) == 0


@pytest.mark.parametrize("has_catalogue", [True, False], ids=["catalogue", "no-catalogue"])
def test_the_name_of_a_job_whose_cycles_were_removed_is_not_given_again(
    tmp_path, monkeypatch, secrets_key, has_catalogue
):
    """Checkpoint folders and agents' runs go by ids."""
    monkeypatch.setattr(compaction, "LEAST_CYCLES", 1)
    engine = engine_on(tmp_path)
    submit(engine, "first").result(60)
    for name in ("train", "train~2"):
        ended_job(engine, name)
    until = time.monotonic() + 60
    while len(engine.snapshot.jobs) > 1:
        assert time.monotonic() < until
        fill(engine, 1)
    fill(engine, 5)
    engine.close()
    with closing(SqliteJournal(tmp_path / "journal.db", goes_on=True)) as journal:
        compact(journal, len(journal) - 2, rest=lambda _s: None)
    if not has_catalogue:
        (tmp_path / "c.db").unlink()
    engine = engine_on(tmp_path)
    intake = Intake(engine, Owners(engine.executor), SecretStore(engine.journal, secrets_key))
    (told,) = intake.submit(read_submitted_specs(b'{"jobs": [{"id": "train", "command": ["true"]}]}')).result(60)
    assert told == {"id": "train~3", "refused": ""}
    assert engine.catalogue.get("train").verdict == "stopped"
    listed = engine.catalogue.listed(over=True)
    assert [(r.number, r.job.id) for r in listed] == [(1, "first"), (2, "train"), (3, "train~2"), (4, "train~3")]
    engine.close()
