"""`hocket demo`, without a terminal: real jobs, a real kill, a table, a picture, and what fifo would have done."""

import json
import os
import subprocess
import sys

import pytest
from tests.live.processes import end_all

from hocket.control.journal import open_to_read
from hocket.model.event import JobFailed

HOCKET = (sys.executable, "-m", "hocket")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    (out / "tmp").mkdir()
    env = {**os.environ, "COLUMNS": "160", "TMPDIR": str(out / "tmp")}  # By which its processes are found.
    try:
        yield (
            subprocess.run([*HOCKET, "demo", "--out", str(out)], capture_output=True, text=True, timeout=900, env=env),
            out,
        )
    finally:
        end_all(out)


@pytest.mark.slow
def test_every_job_reaches_its_goal_and_the_one_that_was_killed_too(ran):
    done, _out = ran
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert len(lines) == 8, done.stdout
    assert all("finished" in line or "attained" in line for line in lines)
    assert "'unlucky' was killed with -9" in done.stdout


@pytest.mark.slow
def test_its_journal_tells_of_the_kill_and_is_decided_again_alike(ran):
    _done, out = ran
    journal = open_to_read(out / "journal.db")
    failures = [e for cycle in journal for e in cycle.events if isinstance(e, JobFailed)]
    journal.close()
    assert [f.job for f in failures] == ["unlucky"]
    assert "SIGKILL" in failures[0].reason
    again = subprocess.run([*HOCKET, "replay", str(out / "journal.db")], capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.slow
def test_what_if_run_again_comes_close_to_what_was_recorded(ran):
    _done, out = ran
    told = subprocess.run(
        [*HOCKET, "whatif", str(out / "journal.db"), "--policy", "fifo", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = json.loads(told.stdout)
    assert found["band"]["share"] < 0.5  # wide, since the machine may be busy while it runs
    assert found["whatif"][0]["finished"] == 8


@pytest.mark.slow
def test_it_draws_which_job_had_which_device(ran):
    _done, out = ran
    assert (out / "gantt.png").stat().st_size > 5000
    assert (out / "gantt.svg").read_text().lstrip().startswith("<?xml")
