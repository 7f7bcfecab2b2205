"""A home is examined as it lies there; what can be put right is, and only when no controller would do it itself."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from hocket.agent import run_folder
from hocket.agent.node.state_folder import run_folder_of
from hocket.control.journal import SqliteJournal
from hocket.executors.agents.executor import agents
from hocket.model.event import OwnerSet
from hocket.model.job import Owner
from hocket.policies import find
from hocket.service import compaction
from hocket.service.engine import Engine
from hocket.service.home import Home
from hocket.service.home_check import Health, examine


@pytest.fixture
def home(tmp_path):
    """With a journal of some cycles and a catalogue, of a controller that has ended."""
    found = Home(tmp_path / "home")
    found.make()
    engine = Engine(str(found.journal), agents(300.0), find("fifo").bound(), catalogue=found.catalogue)
    engine.start()
    for n in range(5):
        engine.executor.post(lambda _state, now_s, n=n: [OwnerSet(now_s, Owner(f"o{n}"))]).result(60)
    engine.close()
    found.write(found.journal_mark, str(found.journal))
    return found


def troubles(home):
    return {f.about: f for f in examine(home) if f.health is not Health.OK}


def test_a_home_in_order_has_no_trouble_but_that_no_controller_runs(home):
    (only,) = troubles(home).values()
    assert (only.about, only.health) == ("controller", Health.WARNING)
    (journal,) = [f for f in examine(home) if f.about == "journal"]
    assert "5 cycles, all of them whole" in journal.text


def test_what_others_can_read_is_closed(home):
    os.chmod(home.token_file, 0o644)
    found = troubles(home)["permissions"]
    assert "has mode 644" in found.text
    found.repair()
    assert "permissions" not in troubles(home)


def test_a_journal_that_is_gone_is_missed(home):
    home.journal.unlink()
    assert "had jobs, and is missing or empty" in troubles(home)["journal"].text
    home.journal_mark.unlink()
    assert "journal" not in troubles(home)


def test_a_journal_with_a_damaged_cycle_is_found(home):
    with closing(sqlite3.connect(home.journal)) as db, db:
        db.execute("UPDATE cycle SET value = x'00' WHERE rowid = 3")
    found = troubles(home)["journal"]
    assert found.health is Health.PROBLEM
    assert "after 2 cycles" in found.text


@pytest.mark.parametrize("is_held", [False, True])
def test_a_damaged_catalogue_is_removed_unless_a_controller_has_it(home, is_held):
    home.catalogue.write_bytes(b"nonsense" * 1000)
    if is_held:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": "now"}
        home.journal.with_name("journal.db.lock").write_text(json.dumps(holder))
    found = troubles(home)["catalogue"]
    assert (found.health, found.repair is None) == (Health.PROBLEM, is_held)
    if not is_held:
        found.repair()
        assert not home.catalogue.exists()


def test_processes_that_a_dead_sidecar_left_are_found_and_killed(home):
    folder = run_folder_of(str(home.agent), "j", 3)
    os.makedirs(folder)
    spec = {"job": "j", "attempt": 3, "mark": f"mark-{os.getpid()}", "argv": ["x"], "cwd": "/"}
    run_folder.create(folder, spec)
    program = [sys.executable, "-c", "import time\nwhile True: time.sleep(1)"]
    left = subprocess.Popen(program, env={**os.environ, "HOCKET_MARK": spec["mark"]})
    try:
        found = troubles(home)["runs"]
        assert found.text == f"run 3 of job 'j' has no sidecar, and left processes [{left.pid}]"
        with suppress(OSError):  # A child of this test stays, as a zombie, until it is waited for.
            found.repair()
        assert left.wait(60) == -9
    finally:
        left.kill()
        left.wait()
    assert "died unseen" in troubles(home)["runs"].text


def test_a_home_that_is_not_there(tmp_path):
    (only,) = examine(Home(tmp_path / "none"))
    assert (only.about, only.health) == ("home", Health.PROBLEM)


def test_archives_are_read_too(home, monkeypatch):
    monkeypatch.setattr(compaction, "LEAST_CYCLES", 1)
    with closing(SqliteJournal(home.journal, goes_on=True)) as journal:
        compaction.compact(journal, 3, str(home.archive), lambda _s: None)
    found = {f.about: f for f in examine(home)}
    assert "has 2 cycles, all of them whole" in found["journal"].text
    assert "3 cycles, up to 20" in found["journal"].text
    assert found["archive"].health is Health.OK
    assert "has the journal's cycles from 1 on" in found["archive"].text
    (file,) = home.archive.iterdir()
    file.rename(home.archive / file.name.replace("000003", "000002"))
    assert "none with the cycles before the journal's first" in troubles(home)["archive"].text
    next(home.archive.iterdir()).write_bytes(b"spoilt")
    assert troubles(home)["archive"].health is Health.PROBLEM
