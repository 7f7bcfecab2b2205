"""A cgroup limits, freezes, kills and measures all that is in it: real ones where they can be made, and files of v2."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.children import child
from tests.live.processes import stands_still

from hocket.agent.cgroup import CPU, CPU_TIME, MEMORY, PROCESSES, Cgroup
from hocket.agent.node.containment import Containment
from hocket.agent.orphan_cleanup import kill_orphans, orphans
from hocket.agent.process_tree import process
from hocket.agent.protocol import RunKey, RunLimits

FOR_EVER = (sys.executable, "-c", "import time; time.sleep(600)")
# Allocates so many MiB, and writes into each page.
ALLOCATES = (
    "import sys; x = bytearray(int(sys.argv[1]) << 20); x[::4096] = b'x' * len(x[::4096]); print('done', flush=True)"
)
WORKS = f"{ALLOCATES}\nn = 0\nwhile n < 3_000_000: n += 1\nprint('worked', flush=True); input()"


@pytest.fixture
def cgroup(containment: Containment) -> Cgroup:
    made = containment.create(RunKey("j", 1), uuid.uuid4().hex, RunLimits())
    assert made is not None
    return made


def runs_in(cgroup: Cgroup, *argv: str, **more: Any) -> AbstractContextManager[subprocess.Popen[Any]]:
    return child(argv, preexec_fn=cgroup.enter, text=True, **more)


def test_what_a_process_starts_is_in_its_cgroup_whatever_it_does_to_hide(cgroup: Cgroup, until: Any) -> None:
    hides = ["env", "-i", "setsid", "--fork", *FOR_EVER]
    with runs_in(cgroup, *hides) as first:
        first.wait()
        (daemon,) = until(cgroup.processes)
        assert daemon != first.pid
        cgroup.kill()
        until(lambda: process(daemon) is None)
        assert cgroup.processes() == []
        until(cgroup.remove, "the empty cgroup is removed")
    assert not any(os.path.exists(folder) for folder in cgroup.each)
    cgroup.kill()
    assert (cgroup.processes(), cgroup.freeze(), cgroup.remove()) == ([], False, True), "nothing is wrong with one gone"


def test_processes_that_start_others_all_the_time_are_killed_too(cgroup: Cgroup, until: Any) -> None:
    # Should this test be killed, they end some time.
    forks = "import os, time\nend_s = time.time() + 300\nwhile time.time() < end_s:\n    if os.fork(): os._exit(0)"
    with runs_in(cgroup, sys.executable, "-c", forks) as first:
        first.wait()

        def gone() -> bool:
            cgroup.kill()
            return not cgroup.processes()

        until(gone)


def test_a_frozen_cgroup_stands_still_and_can_be_killed(cgroup: Cgroup, until: Any) -> None:
    with runs_in(cgroup, *FOR_EVER) as first:
        assert cgroup.freeze()
        until(lambda: cgroup.is_frozen)
        assert stands_still(first.pid)
        assert cgroup.thaw()
        until(lambda: not cgroup.is_frozen)
        assert cgroup.freeze()
        until(lambda: cgroup.is_frozen)
        cgroup.kill()
        assert first.wait(60) == -9


def test_a_process_that_uses_more_memory_than_the_limit_is_killed(cgroup: Cgroup) -> None:
    cgroup.limit(mem_mib=48.0, cores=0.0, hard_cpus=False)
    assert cgroup.limit_mib() == 48.0
    with runs_in(cgroup, sys.executable, "-c", ALLOCATES, "16", stdout=subprocess.PIPE) as fits:
        assert fits.communicate()[0] == "done\n"
    assert (fits.returncode, cgroup.ran_out_of_memory()) == (0, "")
    with runs_in(cgroup, sys.executable, "-c", ALLOCATES, "256") as does_not:
        assert does_not.wait(60) == -9
    assert cgroup.ran_out_of_memory() == "limit"
    cgroup.limit(mem_mib=512.0, cores=0.0, hard_cpus=False)
    with runs_in(cgroup, sys.executable, "-c", ALLOCATES, "256") as fits:
        assert fits.wait(60) == 0, "a limit can be raised"
    cgroup.limit(mem_mib=64.0, cores=0.0, hard_cpus=False)
    assert cgroup.limit_mib() == 64.0


def test_it_measures_what_was_used_by_those_too_that_have_ended(cgroup: Cgroup) -> None:
    with runs_in(cgroup, sys.executable, "-c", WORKS, "64", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert (first.stdout.readline(), first.stdout.readline()) == ("done\n", "worked\n")
        assert 64 < (cgroup.mem_mib() or 0.0) < 256
        first.communicate("\n")
    assert (cgroup.cpu_s() or 0.0) > 0.02
    assert (cgroup.mem_mib() or 0.0) < 64


def test_cores_are_shares_and_a_quota_only_if_that_is_asked_for(cgroup: Cgroup, until: Any) -> None:
    folder = Path(cgroup.folders[CPU])
    v2 = (folder / "cpu.weight").exists()
    cgroup.limit(mem_mib=0.0, cores=2.0, hard_cpus=False)
    assert (folder / ("cpu.weight" if v2 else "cpu.shares")).read_text() == ("200\n" if v2 else "2048\n")
    quota = folder / ("cpu.max" if v2 else "cpu.cfs_quota_us")
    assert quota.read_text().split()[0] in ("max", "-1")
    cgroup.limit(mem_mib=0.0, cores=0.1, hard_cpus=True)
    assert quota.read_text().split()[0] == "10000"
    with runs_in(cgroup, sys.executable, "-c", "while True: pass"):
        until(lambda: int((folder / "cpu.stat").read_text().split("nr_throttled")[1].split()[0]) > 3, "it is throttled")


def test_a_limit_below_what_is_held_already_does_not_keep_a_prepared_run_from_its_start(
    containment: Containment, cgroup: Cgroup, caplog: pytest.LogCaptureFixture
) -> None:
    if not Path(cgroup.folders[MEMORY], "memory.limit_in_bytes").exists():
        pytest.skip("version 2 takes such a limit, and kills")
    cgroup.limit(mem_mib=512.0, cores=0.0, hard_cpus=False)
    with runs_in(cgroup, sys.executable, "-c", WORKS, "64", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "done\n"
        containment.change_limits(RunKey("j", 1), cgroup, RunLimits(mem_mib=16.0))
        assert cgroup.limit_mib() == 512.0
        assert "run 1 of job 'j': keeps the limits that it was prepared with" in caplog.text
        assert first.communicate("\n")[0] == "worked\n"


def test_what_bears_no_mark_is_found_in_its_cgroup_and_killed(cgroup: Cgroup, until: Any) -> None:
    with runs_in(cgroup, *FOR_EVER) as first:
        assert orphans("no such mark", cgroup=cgroup) == [first.pid]
        assert kill_orphans("no such mark", cgroup=cgroup) == []
        assert first.wait(60) == -9
    until(cgroup.remove)


# -- version 2, of which this machine may not have all: files with its names ---------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Cgroup]:
    def make(**texts: str) -> Cgroup:
        for name in (
            "cgroup.controllers",
            "memory.max",
            "memory.swap.max",
            "memory.oom.group",
            "cpu.weight",
            "cpu.max",
        ):
            (tmp_path / name).touch()
        for name, text in texts.items():
            (tmp_path / name.replace("_", ".", 1)).write_text(text)
        return Cgroup(dict.fromkeys((PROCESSES, MEMORY, CPU, CPU_TIME), str(tmp_path)))

    return make


def test_limits_of_version_2(files: Any, tmp_path: Path) -> None:
    files().limit(mem_mib=512.5, cores=1.5, hard_cpus=True)
    wrote = {path.name: path.read_text() for path in tmp_path.iterdir() if path.stat().st_size}
    assert wrote == {
        "memory.max": str(int(512.5 * (1 << 20))),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.weight": "150",
        "cpu.max": "150000 100000",
    }
    assert files().limit_mib() == 512.5


def test_cores_beyond_what_version_2_has_weights_for(files: Any, tmp_path: Path) -> None:
    files().limit(mem_mib=0.0, cores=512.0, hard_cpus=False)
    assert (tmp_path / "cpu.weight").read_text() == "10000"
    files().limit(mem_mib=0.0, cores=1e-6, hard_cpus=True)
    assert (tmp_path / "cpu.weight").read_text() == "1"
    assert (tmp_path / "cpu.max").read_text() == "1000 100000"


@pytest.mark.parametrize(
    ("limit", "events", "why"),
    [
        ("1048576", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n", "limit"),
        ("1048576", "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n", ""),
        ("1048576", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", "machine"),
        ("max", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", "machine"),
    ],
)
def test_why_the_kernel_killed_in_version_2(files: Any, limit: str, events: str, why: str) -> None:
    assert files(memory_max=limit, memory_events=events).ran_out_of_memory() == why


def test_what_version_2_measures(files: Any, tmp_path: Path) -> None:
    cgroup = files(memory_current=str(300 << 20), memory_stat=f"anon 1\ninactive_file {100 << 20}\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert (cgroup.mem_mib(), cgroup.cpu_s(), cgroup.limit_mib()) == (200.0, 1.5, 0.0)


def test_a_cgroup_without_a_memory_controller_says_that_it_does_not_know(tmp_path: Path) -> None:
    cgroup = Cgroup({PROCESSES: str(tmp_path)})
    cgroup.limit(mem_mib=1.0, cores=1.0, hard_cpus=True)
    assert (cgroup.mem_mib(), cgroup.cpu_s(), cgroup.limit_mib(), cgroup.ran_out_of_memory()) == (None, None, 0.0, "")
