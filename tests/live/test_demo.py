"""`hocket demo`, without a terminal: real jobs, a real kill, a table, a picture, and what fifo would have done."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.live.processes import end_all
from tests.unit.cli.typed import hocket

from hocket.control.journal import open_to_read
from hocket.model.event import JobFailed

HAS_QUERY = find_spec("duckdb") is not None and find_spec("sqlglot") is not None  # both come with hocket[query]
JOBS = 8 + HAS_QUERY


@pytest.mark.slow
def test_the_demo_ends_well_and_its_journal_picture_and_what_if_tell_the_same(tmp_path):
    """One test, since the demo takes half a minute and test workers share no results."""
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "COLUMNS": "160", "TMPDIR": str(tmp_path / "tmp")}  # By which its processes are found.
    command = [sys.executable, "-m", "hocket", "demo", "--out", str(tmp_path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env)
    finally:
        end_all(tmp_path)
    every_job_reaches_its_goal_and_the_killed_one_too(done)
    it_draws_which_job_had_which_device(tmp_path)
    assert f"{tmp_path}/page/index.html" in done.stdout.replace("\n", "")
    assert (tmp_path / "page" / "index.html").stat().st_size > 100_000
    the_journal_tells_of_the_kill_and_is_decided_again_alike(tmp_path / "journal.db")
    what_if_run_again_comes_close_to_what_was_recorded(tmp_path / "journal.db")


def every_job_reaches_its_goal_and_the_killed_one_too(done):
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert len(lines) == JOBS, done.stdout
    assert all("finished" in line or "attained" in line for line in lines)
    assert "'unlucky' was killed with -9" in done.stdout
    assert ("'sales' was answered" in done.stdout) is HAS_QUERY


def it_draws_which_job_had_which_device(out):
    assert (out / "gantt.png").stat().st_size > 5000
    assert (out / "gantt.svg").read_text().lstrip().startswith("<?xml")


def the_journal_tells_of_the_kill_and_is_decided_again_alike(path):
    journal = open_to_read(path)
    failures = [e for cycle in journal for e in cycle.events if isinstance(e, JobFailed)]
    journal.close()
    assert [f.job for f in failures] == ["unlucky"]
    assert "SIGKILL" in failures[0].reason
    again = hocket("replay", str(path))
    assert again.exit_code == 0, again.output


def what_if_run_again_comes_close_to_what_was_recorded(path):
    found = json.loads(hocket("whatif", str(path), "--policy", "fifo", "--json").stdout)
    assert found["band"]["share"] < 0.5  # wide, since the machine may be busy while it runs
    assert found["whatif"][0]["finished"] == JOBS
