"""A job that is suspended: all its processes stand still, keep their memory, and go on where they were."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.unit.agent.conftest import wait_until

from hocket.agent.lease_file import boot_s, write_lease
from hocket.agent.process_tree import descendants, process

COUNTS = """
import signal, sys, time
def leave(*_):
    open('left', 'w').write(str(count))
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
count = 0
print('training', flush=True)
while True:
    count += 1
    time.sleep(0.01)
"""
# It stops itself when that suits it, as a query does after a batch.
WILLING = """
import os, signal, time
def stop(*_):
    print('stops itself', flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    print('goes on', flush=True)
signal.signal(signal.SIGTSTP, stop)
print('training', flush=True)
while True: time.sleep(0.01)
"""


def states(job: Any) -> set[str]:
    """Those of its processes."""
    return {p.state for p in descendants(job.pid)}


def test_all_its_processes_stand_still_and_go_on(run_python: Any) -> None:
    job = run_python(f"import subprocess\nsubprocess.Popen(['sleep', '600'])\n{COUNTS}")
    job.wait_for_text("training\n")
    job.send("suspend", grace_s=0)
    said = job.wait_for("suspended")
    assert said["mem_mib"] > 1
    wait_until(lambda: states(job) == {"T"}, "all stand still")
    job.send("continue")
    job.wait_for("continued")
    wait_until(lambda: "T" not in states(job), "it goes on")
    job.send("stop", grace_s=60)
    assert job.finish()["code"] == 0
    assert job.story() == ["started", "suspended", "continued", "checkpoint-asked", "exited"]


def test_a_job_may_stop_itself_within_its_grace(run_python: Any) -> None:
    job = run_python(WILLING)
    job.wait_for_text("training\n")
    job.send("suspend", grace_s=600)
    job.wait_for("suspended")
    assert job.log() == "training\nstops itself\n"
    job.send("continue")
    job.wait_for_text("goes on\n")
    job.send("kill")
    job.finish()


def test_one_that_does_not_is_stopped_when_its_grace_is_over(run_python: Any) -> None:
    job = run_python(COUNTS)
    job.wait_for_text("training\n")
    job.send("suspend", grace_s=0.2)
    job.wait_for("suspended")
    wait_until(lambda: states(job) == {"T"}, "all stand still")
    job.send("kill")
    job.finish()


def test_a_suspended_job_that_is_to_leave_saves_its_state(run_python: Any) -> None:
    job = run_python(COUNTS)
    job.wait_for_text("training\n")
    job.send("suspend", grace_s=0)
    job.wait_for("suspended")
    job.send("stop", grace_s=600)
    end = job.finish()
    assert (end["code"], end["asked"], end["killed"]) == (0, True, False)
    assert int((job.folder.parent / "left").read_text()) > 0


def test_a_suspended_job_can_be_killed_and_is_told_as_lost_if_another_did_it(run_python: Any) -> None:
    for kills in (lambda job, _pid: job.send("kill"), lambda _job, pid: os.kill(pid, signal.SIGKILL)):
        job = run_python(COUNTS)
        (pid,) = job.wait_for("started")["pids"]
        job.send("suspend", grace_s=0)
        job.wait_for("suspended")
        kills(job, pid)
        assert job.finish()["signal"] == "SIGKILL"


def test_the_order_may_come_again(run_python: Any) -> None:
    job = run_python(COUNTS)
    job.wait_for_text("training\n")
    job.send("suspend", grace_s=0)
    job.wait_for("suspended")
    job.send("suspend", grace_s=0)
    wait_until(lambda: len(job.events("suspended")) == 2, "it is said again")
    job.send("kill")
    job.finish()
    assert not job.events("warning")


def test_it_stays_suspended_when_its_lease_is_renewed(run_python: Any, tmp_path: Path) -> None:
    lease = str(tmp_path / "lease")
    write_lease(lease, boot_s() + 3600)
    job = run_python(COUNTS, lease=lease)
    (pid,) = job.wait_for("started")["pids"]
    job.send("suspend", grace_s=0)
    job.wait_for("suspended")
    write_lease(lease, boot_s() - 1)
    job.wait_for("frozen")
    write_lease(lease, boot_s() + 3600)
    job.wait_for("thawed")
    found = process(pid)
    assert found is not None
    assert found.state == "T"
    write_lease(lease, boot_s() - 1)
    wait_until(lambda: len(job.events("frozen")) == 2, "it is frozen again")
    job.send("continue")  # It goes on when the lease is renewed.
    job.wait_for("continued")
    write_lease(lease, boot_s() + 3600)
    wait_until(lambda: (now := process(pid)) is not None and now.state != "T", "it goes on")
    job.send("kill")
    job.finish()
