"""A job stands still when the lease of its agent is over, with all that it started, and goes on when it is renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.agent.lease_file import boot_s, write_lease
from hocket.agent.process_tree import process
from hocket.agent.sidecar.lease_watch import LeaseWatch

# A program that counts, and one of a session of its own that counts too.
COUNTS = """
import os, sys, time
def count(name):
    n = 0
    while not os.path.exists('end'):
        n += 1
        with open(name + '.part', 'w') as file: file.write(str(n))
        os.replace(name + '.part', name)
        time.sleep(0.005)
if os.fork() == 0:
    os.setsid()
    count('child')
    os._exit(0)
count('parent')
os.wait()
"""


def counted(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("parent", "child")]


def stands_still(pids: list[int]) -> bool:
    found = [process(pid) for pid in pids]
    return all(each is not None and each.state == "T" for each in found)


def test_a_job_stands_still_when_the_lease_is_over_and_goes_on_when_it_is_renewed(
    run_python: Any, until: Any, tmp_path: Path
) -> None:
    lease = tmp_path / "lease"
    write_lease(str(lease), boot_s() + 3600)
    job = run_python(COUNTS, lease=str(lease), progress={}, hang_limit_s=3600.0)
    (parent,) = job.wait_for("started")["pids"]
    until(lambda: (tmp_path / "parent").exists() and (tmp_path / "child").exists())
    write_lease(str(lease), boot_s())
    job.wait_for("frozen")
    until(lambda: stands_still([parent]))
    before = counted(tmp_path)
    write_lease(str(lease), boot_s() + 3600)
    assert job.wait_for("thawed")["stood_s"] > 0
    until(lambda: all(now > was for now, was in zip(counted(tmp_path), before, strict=True)), "both go on")
    (tmp_path / "end").touch()
    assert job.finish()["code"] == 0
    assert job.story() == ["started", "frozen", "thawed", "exited"]


def test_all_that_a_job_started_stands_still(run_python: Any, until: Any, tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    job = run_python(COUNTS, lease=str(lease))  # No such file yet: it runs.
    until(lambda: (tmp_path / "parent").exists() and (tmp_path / "child").exists())
    write_lease(str(lease), 0.0)
    job.wait_for("frozen")
    before = counted(tmp_path)
    job.send("kill")
    job.finish()
    now = counted(tmp_path)
    assert all(n - was <= 1 for n, was in zip(now, before, strict=True)), "one write may have been under way"


def test_an_order_to_end_comes_before_a_renewed_lease(run_python: Any, tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    job = run_python(COUNTS, lease=str(lease))
    job.wait_for("started")
    write_lease(str(lease), 0.0)
    job.wait_for("frozen")
    before = (tmp_path / "parent").read_text() if (tmp_path / "parent").exists() else ""
    job.send("kill")
    write_lease(str(lease), boot_s() + 3600)
    event = job.finish()
    assert (event["killed"], "thawed" in job.story()) == (True, False)
    assert ((tmp_path / "parent").read_text() if before else "") == before


def test_a_job_that_stands_still_does_not_hang(run_python: Any, until: Any, tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    job = run_python(COUNTS, lease=str(lease), progress={}, hang_limit_s=5.0)
    job.wait_for("started")
    write_lease(str(lease), 0.0)
    job.wait_for("frozen")
    over_s = boot_s() + 5.5
    until(lambda: boot_s() > over_s, "longer than it may be silent")
    (tmp_path / "end").touch()
    write_lease(str(lease), boot_s() + 3600)
    job.finish()
    assert job.story() == ["started", "frozen", "thawed", "exited"]


def test_before_a_job_goes_on_its_orders_are_read_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.agent.sidecar.process_suspension.orphans", lambda *_: [])
    lease = str(tmp_path / "lease")
    watch = LeaseWatch(lease, "mark")
    watch.begin(10.0)
    write_lease(lease, 0.0)
    assert watch.look(11.0, ()) == {}
    assert watch.is_frozen
    write_lease(lease, boot_s() + 3600)
    assert watch.look(12.0, ()) is None
    assert (watch.is_frozen, watch.next_s) == (True, 12.0), "it looks again at once, when the orders are read"
    write_lease(lease, 0.0)
    assert watch.look(12.0, ()) is None, "the lease is over again"
    write_lease(lease, boot_s() + 3600)
    assert watch.look(13.0, ()) is None
    assert (watch.look(13.0, ()) or {}).keys() == {"stood_s"}
    assert not watch.is_frozen


def test_a_lease_is_looked_at_when_it_ends_and_often_in_case_the_machine_sleeps(tmp_path: Path) -> None:
    lease = str(tmp_path / "lease")
    watch = LeaseWatch(lease, "mark")
    assert watch.next_s is None
    watch.begin(10.0)
    assert watch.next_s == 11.0
    write_lease(lease, boot_s() + 0.5)
    assert watch.look(11.0, ()) is None
    assert 11.0 < watch.next_s <= 11.5
    write_lease(lease, boot_s() + 3600)
    assert watch.look(12.0, ()) is None
    assert watch.next_s == 14.0
    unleased = LeaseWatch(None, "mark")
    unleased.begin(0.0)
    assert unleased.next_s is None


def test_a_job_does_not_start_while_the_lease_is_over(run_python: Any, tmp_path: Path) -> None:
    """Its agent was stopped after it had taken the order, and the job may run elsewhere by now."""
    lease = tmp_path / "lease"
    write_lease(str(lease), 0.0)
    job = run_python("print('runs')", lease=str(lease))
    job.send_when_up("dance")
    job.wait_for("warning")  # It knows no such order; it reads orders once it has begun.
    assert job.story() == ["warning"]
    write_lease(str(lease), boot_s() + 3600)
    assert job.finish()["code"] == 0
    assert job.story() == ["warning", "started", "exited"]


def test_a_job_that_waits_for_the_lease_can_be_stopped(run_python: Any, tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    write_lease(str(lease), 0.0)
    job = run_python("print('runs')", lease=str(lease))
    job.send_when_up("stop")
    assert (job.finish()["asked"], job.story()) == (True, ["exited"])
