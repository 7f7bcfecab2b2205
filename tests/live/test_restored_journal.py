"""A journal that was restored from a backup, or is gone: no number of a run is given twice, and no job is stuck."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.processes import below

JOB = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


def backed_up(controller: LiveController, name: str) -> Path:
    copy = controller.root / name
    with closing(sqlite3.connect(controller.home / "journal.db")) as live, closing(sqlite3.connect(copy)) as kept:
        live.backup(kept)
    return copy


def restore(controller: LiveController, copy: Path | None) -> None:
    controller.kill()
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (controller.home / name).unlink(missing_ok=True)
    if copy is not None:
        shutil.copy(copy, controller.home / "journal.db")


def is_state(controller: LiveController, *states: str) -> bool:
    return controller.jobs()["j"]["state"] in states


@pytest.mark.slow
def test_a_job_goes_on_with_an_older_journal_and_a_journal_that_is_gone_is_missed(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--policy", "fifo") as controller:
        controller.begin()
        (tmp_path / "job.py").write_text(JOB)
        command = [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "end")]
        controller.call("POST", "/v1/jobs", {"jobs": [{"id": "j", "command": command, "cwd": "/"}]})
        starting = backed_up(controller, "starting.db")
        for _ in range(2):
            awaited(lambda: is_state(controller, "running"), "it runs")
            controller.call("POST", "/v1/jobs/j/pause")
            awaited(lambda: is_state(controller, "paused", "held"), "it is paused")
            controller.call("POST", "/v1/jobs/j/resume")
        awaited(lambda: is_state(controller, "running"), "it runs the third time")

        restore(controller, starting)
        controller.begin()
        awaited(lambda: is_state(controller, "running"), "it runs again")
        assert controller.call("GET", "/v1/jobs/j")["attempt_list"][-1]["run"] > 3, "no number is given twice"
        running = [p for p in below(tmp_path) if p.kind == "training"]
        assert len(running) == 1, running

        restore(controller, None)
        controller.start()
        awaited(lambda: controller.code is not None, "it refuses to begin without its journal")
        assert controller.code == 2
        assert "had a journal" in controller.log.read_text()
        assert "hocket up --new-journal" in controller.log.read_text()
        assert not (controller.home / "journal.db").exists(), "nothing is in the way of a backup"

        restore(controller, starting)
        controller.begin()
        (tmp_path / "end").touch()
        awaited(lambda: is_state(controller, "finished"), "it finishes")


@pytest.mark.slow
def test_a_home_begins_anew_when_that_is_said(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--new-journal") as controller:
        controller.begin()
        controller.call("POST", "/v1/jobs", {"jobs": [{"id": "j", "command": ["true"], "cwd": "/"}]})
        awaited(lambda: is_state(controller, "finished"), "it finishes")
        restore(controller, None)
        controller.begin()
        assert controller.jobs() == {}
