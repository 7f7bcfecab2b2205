"""A sidecar whose job has a cgroup: with cgroups as the machine has them, and with version 1 alone."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.cgroup import Cgroup
from hocket.agent.lease_file import boot_s, write_lease
from hocket.agent.node.containment import Containment
from hocket.agent.process_tree import process, read
from hocket.agent.protocol import RunKey, RunLimits

GOES_ON = "import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)"


@pytest.fixture
def cgroup(containment: Containment) -> Cgroup:
    made = containment.create(RunKey("j", 1), uuid.uuid4().hex, RunLimits())
    assert made is not None
    return made


def is_sleep(pid: int) -> bool:
    return (read(f"/proc/{pid}/comm") or b"").strip() == b"sleep"


def test_a_frozen_job_goes_on_or_is_killed(run_python: Any, cgroup: Cgroup, until: Any, tmp_path: Path) -> None:
    lease = str(tmp_path / "lease")
    write_lease(lease, boot_s() + 3600)
    job = run_python(GOES_ON, lease=lease, cgroup=cgroup.folders)
    job.wait_for("started")
    write_lease(lease, 0.0)
    job.wait_for("frozen")
    until(lambda: cgroup.is_frozen, "by the freezer of its cgroup")
    write_lease(lease, boot_s() + 3600)
    job.wait_for("thawed")
    assert not cgroup.is_frozen
    write_lease(lease, 0.0)
    until(lambda: cgroup.is_frozen)
    job.send("kill")
    exited = job.finish()
    assert (exited["signal"], exited["killed"]) == ("SIGKILL", True)


def test_a_sidecar_that_begins_again_kills_what_the_one_before_it_left(
    prepared_run: Any, cgroup: Cgroup, until: Any, tmp_path: Path
) -> None:
    program = f"import subprocess\nsubprocess.run(['env', '-i', 'setsid', '--fork', 'sleep', '600'])\n{GOES_ON}"
    job = prepared_run(sys.executable, "-c", program, cgroup=cgroup.folders).launch()
    (worker,) = job.wait_for("started")["pids"]
    (left,) = until(lambda: [pid for pid in cgroup.processes() if pid != worker and is_sleep(pid)])
    os.kill(job.pid, signal.SIGKILL)
    job.sidecar.wait()
    assert process(left) is not None
    (tmp_path / "end").touch()
    job.launch()
    until(lambda: len(job.events("started")) == 2)
    job.sidecar.wait()
    assert process(left) is None


def test_a_job_whose_cgroup_is_gone_does_not_start_outside_of_it(run: Any, cgroup: Cgroup, until: Any) -> None:
    until(cgroup.remove)
    told = run("true", cgroup=cgroup.folders).wait_for("cannot-start")
    assert told["reason"] == "its cgroup cannot be entered: No such file or directory"
    assert told["passing"], "it may be there the next time"
