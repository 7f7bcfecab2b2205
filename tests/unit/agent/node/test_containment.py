"""A job cannot leave what contains it, and does not use more than it asked for: real agents, sidecars and cgroups."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.children import child
from tests.live.processes import remove_cgroups, stands_still
from tests.unit.agent.node.test_runs import Node
from tests.whole_lines import whole_lines

from hocket.agent import run_folder
from hocket.agent.cgroup import CPU, MEMORY, PROCESSES, Cgroup
from hocket.agent.lease_file import boot_s, write_lease
from hocket.agent.node import containment as containment_file
from hocket.agent.node import runs as runs_file
from hocket.agent.node.cgroup_hierarchies import Hierarchy, hierarchies
from hocket.agent.node.containment import Containment, Wanted
from hocket.agent.node.known_run import cgroup_of, read_run
from hocket.agent.process_tree import process
from hocket.agent.protocol import PrepareRun, RunKey, RunLimits, StartRun

# It starts a daemon that leaves its session and environment and says its number, and goes on until 'end' is there.
LEAVES_A_DAEMON = """
import os, subprocess, sys, time
daemon = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
subprocess.run(["env", "-i", "setsid", "--fork", sys.executable, "-c", daemon])
while not os.path.exists("end"):
    time.sleep(0.01)
"""
ALLOCATES = "x = bytearray(256 << 20); x[::4096] = b'x' * len(x[::4096])"


@pytest.fixture(scope="module")
def real() -> None:
    """Cgroups with limits can be made here."""
    found = Containment(Wanted.AUTO, uuid.uuid4().hex)
    found.close()
    if not found.limits_all:
        pytest.skip(f"no cgroups can be made here: {found.text}")


@pytest.fixture
def contained(controller: Any, idle_agent: Any, request: pytest.FixtureRequest) -> Any:
    """An agent with cgroups."""
    request.getfixturevalue("real")
    idle_agent.start("--gpus", "4", "--containment", "cgroup")
    assert controller.wait_for_hellos(1).containment.startswith("cgroup ")
    return idle_agent


@pytest.fixture
def uncontained(controller: Any, idle_agent: Any) -> Any:
    """An agent without."""
    idle_agent.start("--gpus", "4", "--containment", "none")
    assert controller.wait_for_hellos(1).containment == "none"
    return idle_agent


def daemon_of(agent: Any, until: Any) -> int:
    until(agent.folders, "the run has begun")
    return int(until(lambda: whole_lines(agent.folder() / "log"), "the daemon runs")[0])


def cgroup(agent: Any, number: int = 1) -> Cgroup:
    run = read_run(str(agent.folder(number)))
    assert run is not None
    assert run.cgroup is not None
    return run.cgroup


def is_removed(cgroup: Cgroup) -> bool:
    return not any(os.path.exists(folder) for folder in cgroup.each)


# -- what is left of a job -----------------------------------------------------------------------------------


def test_a_daemon_is_dead_before_its_run_is_reported_lost(controller: Any, contained: Any, until: Any) -> None:
    key = controller.run_python("j", LEAVES_A_DAEMON)
    daemon, its = daemon_of(contained, until), cgroup(contained)
    os.kill(contained.sidecar(), signal.SIGKILL)
    controller.wait_for(key, "lost")
    assert process(daemon) is None, "its GPU is free from now on"
    until(lambda: is_removed(its), "its cgroup is gone")


def test_without_a_cgroup_a_daemon_outlives_a_sidecar_that_is_killed(
    controller: Any, uncontained: Any, until: Any
) -> None:
    key = controller.run_python("j", LEAVES_A_DAEMON)
    daemon = daemon_of(uncontained, until)
    os.kill(uncontained.sidecar(), signal.SIGKILL)
    controller.wait_for(key, "lost")
    try:
        assert process(daemon) is not None, "docs/machines.md says so"
    finally:
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("containment", ["auto", "none"])
def test_a_daemon_does_not_outlive_its_job_if_the_sidecar_lives(
    controller: Any, idle_agent: Any, until: Any, containment: str
) -> None:
    idle_agent.start("--gpus", "4", "--containment", containment)
    controller.wait_for_hellos(1)
    key = controller.run_python("j", LEAVES_A_DAEMON, cwd=str(idle_agent.state.parent))
    daemon = daemon_of(idle_agent, until)
    (idle_agent.state.parent / "end").touch()
    assert controller.wait_for(key, "exited").fields["code"] == 0
    assert process(daemon) is None


def test_an_agent_that_is_started_again_kills_what_its_dead_sidecars_left(
    controller: Any, contained: Any, until: Any
) -> None:
    key = controller.run_python("j", LEAVES_A_DAEMON)
    daemon, its = daemon_of(contained, until), cgroup(contained)
    contained.kill()
    os.kill(contained.sidecar(), signal.SIGKILL)
    until(lambda: not run_folder.is_running(str(contained.folder())))
    assert process(daemon) is not None
    contained.start("--gpus", "4")
    controller.wait_for(key, "lost")
    assert process(daemon) is None
    until(lambda: is_removed(its), "its cgroup is gone")


def test_a_run_that_goes_on_keeps_its_cgroup_when_the_agent_is_started_again(
    controller: Any, contained: Any, until: Any
) -> None:
    key = controller.run_python("j", LEAVES_A_DAEMON, cwd=str(contained.state.parent))
    daemon, its = daemon_of(contained, until), cgroup(contained)
    stray = os.path.join(os.path.dirname(its.folders[PROCESSES]), "gone-1-00000000")
    os.mkdir(stray)  # of a run whose folder was never written
    contained.kill()
    contained.start("--gpus", "4")
    controller.wait_for_hellos(2)
    until(lambda: not os.path.exists(stray), "what belongs to no run is removed")
    assert daemon in its.processes()
    (contained.state.parent / "end").touch()
    controller.wait_for(key, "exited")
    until(lambda: is_removed(its), "its cgroup is gone")


def test_an_agent_leaves_no_folder_when_its_jobs_are_over(controller: Any, contained: Any) -> None:
    controller.wait_for(controller.run("j", 1, "true"), "exited")
    its = cgroup(contained)
    assert contained.leave(signal.SIGINT) == 0
    assert not any(os.path.exists(os.path.dirname(folder)) for folder in its.each)


def test_a_daemon_stands_still_when_the_lease_is_over_and_is_killed_so(
    controller: Any, contained: Any, until: Any
) -> None:
    key = controller.run_python("j", LEAVES_A_DAEMON)
    daemon, its = daemon_of(contained, until), cgroup(contained)
    contained.kill()
    write_lease(str(contained.state / "lease"), boot_s())
    until(lambda: its.is_frozen, "its cgroup is frozen")
    assert stands_still(daemon)
    run_folder.send(str(contained.folder()), {"do": "kill"})
    until(lambda: process(daemon) is None, "it is killed")
    contained.start("--gpus", "4")
    assert controller.wait_for(key, "exited").fields["signal"] == "SIGKILL"


@pytest.mark.usefixtures("real")
def test_a_run_is_not_reported_lost_while_something_of_it_lives(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "state", contains=Wanted.CGROUP)
    try:
        key = node.run("j", 1, sys.executable, "-u", "-c", LEAVES_A_DAEMON)
        log = Path(node.state.run("j", 1)) / "log"
        daemon = int(until(lambda: log.exists() and whole_lines(log))[0])
        tried: list[Cgroup] = []
        monkeypatch.setattr(runs_file, "_CLEAN_S", 600.0)  # until it is given up
        with monkeypatch.context() as immortal:
            immortal.setattr(Cgroup, "kill", lambda cgroup: tried.append(cgroup))
            os.kill(node.sidecar(key, until), signal.SIGKILL)
            until(lambda: len(tried) > 3, "what is left cannot be killed")
            assert not node.runs.are_gone
        node.hear(key, "lost")
        assert process(daemon) is None
    finally:
        node.end(until)
        remove_cgroups(tmp_path / "state")


# -- limits --------------------------------------------------------------------------------------------------


def limited(controller: Any, limits: RunLimits, *argv: str, number: int = 1) -> RunKey:
    key = RunKey("j", number)
    controller.order(StartRun(key, {"argv": list(argv)}, {}, limits=limits))
    return key


def test_a_job_that_uses_more_memory_than_it_asked_for_is_killed(controller: Any, contained: Any) -> None:
    key = limited(controller, RunLimits(mem_mib=64.0), sys.executable, "-c", ALLOCATES)
    told = controller.wait_for(key, "exited").fields
    assert (told["signal"], told["out_of_memory"], told["limit_mib"], told["saved"]) == (
        "SIGKILL",
        "limit",
        64.0,
        False,
    )
    assert told["peak_mib"] >= 64.0
    key = limited(controller, RunLimits(mem_mib=512.0), sys.executable, "-c", ALLOCATES, number=2)
    told = controller.wait_for(key, "exited").fields
    assert (told["code"], told["out_of_memory"]) == (0, "")
    assert contained.process.poll() is None


@pytest.mark.usefixtures("contained")
def test_a_job_is_killed_as_a_whole_when_one_of_its_processes_used_too_much(controller: Any) -> None:
    program = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {ALLOCATES!r}])\ntime.sleep(600)"
    key = limited(controller, RunLimits(mem_mib=64.0), sys.executable, "-c", program)
    told = controller.wait_for(key, "exited").fields
    assert (told["signal"], told["out_of_memory"]) == ("SIGKILL", "limit")


@pytest.mark.usefixtures("contained")
def test_a_job_that_asks_for_nothing_is_not_limited(controller: Any) -> None:
    key = limited(controller, RunLimits(), sys.executable, "-c", ALLOCATES)
    told = controller.wait_for(key, "exited").fields
    assert (told["code"], told["out_of_memory"], told["limit_mib"]) == (0, "", 0.0)


@pytest.mark.usefixtures("uncontained")
def test_without_cgroups_limits_are_not_enforced(controller: Any) -> None:
    key = limited(controller, RunLimits(mem_mib=64.0, cores=1.0), sys.executable, "-c", ALLOCATES)
    assert controller.wait_for(key, "exited").fields["code"] == 0


def test_what_was_prepared_is_in_its_cgroup_and_gets_the_limits_of_its_size(
    controller: Any, contained: Any, tmp_path: Path, until: Any
) -> None:
    (tmp_path / "imported.py").write_text("THEN = open('/proc/self/cgroup').read()\n")
    script = tmp_path / "job.py"
    script.write_text(
        "import imported, os, time\n"
        "print(int(imported.THEN == open('/proc/self/cgroup').read()), os.getpid(), flush=True)\n"
        "while not os.path.exists('end'): time.sleep(0.01)\n"
    )
    key = RunKey("j", 1)
    spec = {"argv": [sys.executable, str(script)], "cwd": str(tmp_path), "most_workers": 2}
    controller.order(PrepareRun(key, spec, RunLimits(mem_mib=512.0, cores=1.0)))
    assert controller.wait_for(key, "prepared").fields["warm"]
    its = cgroup(contained)
    assert its.limit_mib() == 512.0
    controller.order(StartRun(key, spec | {"workers": 2}, {}, limits=RunLimits(mem_mib=1024.0, cores=2.0)))
    assert controller.wait_for(key, "started").fields["warm"]
    log = contained.folder() / "log"
    until(lambda: len(whole_lines(log)) == 2)
    lines = whole_lines(log)
    assert [line.split()[0] for line in lines] == ["1", "1"], "it was there when it imported, and is there now"
    assert {int(line.split()[1]) for line in lines} <= set(its.processes())
    assert its.limit_mib() == 1024.0
    (tmp_path / "end").touch()
    assert controller.wait_for(key, "exited").fields["code"] == 0


@pytest.mark.usefixtures("real")
def test_cores_are_a_quota_with_hard_cpus(controller: Any, idle_agent: Any, until: Any) -> None:
    idle_agent.start("--gpus", "4", "--hard-cpus")
    controller.wait_for_hellos(1)
    limited(controller, RunLimits(cores=0.1), sys.executable, "-c", "while True: pass")
    until(idle_agent.folders)
    stat = Path(cgroup(idle_agent).folders[CPU], "cpu.stat")
    until(lambda: int(stat.read_text().split("nr_throttled")[1].split()[0]) > 3, "it is throttled")


@pytest.mark.usefixtures("contained")
def test_what_a_job_used_is_what_its_cgroup_counted(controller: Any) -> None:
    # The child is not waited for by its parent, nor by the sidecar before the end.
    program = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    n = 0\n    while n < 10_000_000: n += 1\n"
        "    open('worked', 'w').close()\n    time.sleep(600)\nwhile not os.path.exists('worked'): time.sleep(0.01)"
    )
    key = controller.run_python("j", program)
    assert controller.wait_for(key, "exited").fields["cpu_s"] > 0.1


# -- where there are none, or not all of them ----------------------------------------------------------------


def test_without_cgroups_an_agent_says_so_and_starts_only_if_it_may() -> None:
    found = Containment(Wanted.AUTO, found=[])
    assert (found.kind, found.limits_all) == ("none", False)
    assert found.text == "jobs are not contained: there are no cgroups on this machine"
    assert found.create(RunKey("j", 1), "mark", RunLimits(mem_mib=1.0)) is None
    found.remove_all_but([])
    assert found.tick() == []
    with pytest.raises(ValueError, match="--containment cgroup: there are no cgroups on this machine"):
        Containment(Wanted.CGROUP, found=[])


def test_cgroups_that_may_not_be_written_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "makedirs", mkdir)
    with pytest.raises(ValueError, match=f"no cgroup can be made in '{tmp_path}': Permission denied"):
        Containment(Wanted.CGROUP, found=[Hierarchy(frozenset(), True, str(tmp_path), str(tmp_path))])


class FakeV2:
    """Folders with the files of version 2. A cgroup with processes passes no controllers on, as in the kernel."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.made: list[str] = []
        monkeypatch.setattr(containment_file, "_write", self.write)
        monkeypatch.setattr(containment_file, "_enter_in_child", lambda folder: self.made.append(folder))
        monkeypatch.setattr(os, "geteuid", lambda: 0)  # To an ordinary user, what it owns is delegated.

    def cgroup(self, path: str, controllers: str = "cpu memory", procs: str = "", passes: str = "") -> None:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"controllers": controllers, "procs": procs, "subtree_control": passes}.items():
            (folder / f"cgroup.{name}").write_text(text)

    def write(self, folder: str, name: str, text: str) -> None:
        path = Path(folder, name)
        if name == "cgroup.procs":
            for other in self.root.rglob(name):
                other.write_text(" ".join(pid for pid in other.read_text().split() if pid != text))
        procs = Path(folder, "cgroup.procs")
        if name == "cgroup.subtree_control" and procs.exists() and procs.read_text().split():
            raise OSError(16, "Device or resource busy")
        path.write_text(path.read_text() + f" {text}" if path.exists() else text)

    def found(self, own: str) -> list[Hierarchy]:
        return [Hierarchy(frozenset(), True, str(self.root), str(self.root / own))]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeV2:
    made = FakeV2(tmp_path / "v2", monkeypatch)
    made.cgroup("", passes="cpu memory")
    return made


def test_an_agent_that_is_alone_in_its_cgroup_moves_below_it(fake: FakeV2) -> None:
    fake.cgroup("agent.service", procs=str(os.getpid()))
    found = Containment(Wanted.CGROUP, "abc", found=fake.found("agent.service"))
    assert (fake.root / "agent.service/hocket-agent/cgroup.procs").read_text() == str(os.getpid())
    assert (fake.root / "agent.service/cgroup.subtree_control").read_text().split() == ["+memory", "+cpu"]
    assert (fake.root / "agent.service/hocket-abc/cgroup.subtree_control").read_text().split() == ["+memory", "+cpu"]
    assert fake.made == [str(fake.root / "agent.service/hocket-abc/trial")]
    assert found.limits_all


def test_an_agent_that_is_not_alone_takes_what_a_cgroup_above_passes_on(fake: FakeV2) -> None:
    fake.cgroup("", passes="memory")
    fake.cgroup("user.slice", passes="memory")
    fake.cgroup("user.slice/session.scope", "memory", procs=f"{os.getpid()} 1")
    found = Containment(Wanted.AUTO, "abc", found=fake.found("user.slice/session.scope"))
    assert (found.limits_all, found.kind) == (False, "cgroup v2, no CPU limits")
    assert (fake.root / "user.slice/cgroup.subtree_control").read_text() == "memory", "it is not ours to change"
    assert f"'{fake.root}/user.slice/hocket-abc'" in found.text
    assert not (fake.root / "user.slice/session.scope/hocket-abc").exists()


def test_an_agent_that_is_started_again_finds_the_cgroup_that_it_had_moved_out_of(fake: FakeV2) -> None:
    fake.cgroup("agent.service")
    fake.cgroup("agent.service/hocket-agent", procs=str(os.getpid()))
    found = Containment(Wanted.CGROUP, "abc", found=fake.found("agent.service/hocket-agent"))
    assert found.limits_all
    assert f"'{fake.root}/agent.service/hocket-abc'" in found.text
    assert (fake.root / "agent.service/cgroup.subtree_control").read_text().split() == ["+memory", "+cpu"]


def test_a_cgroup_above_that_is_delegated_is_ours_to_change(fake: FakeV2, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.cgroup("agent.service")
    fake.cgroup("agent.service/main", "", procs=f"{os.getpid()} 1")  # DelegateSubgroup= of systemd
    delegated = str(fake.root / "agent.service")
    monkeypatch.setattr(os, "getxattr", lambda path, _name: b"1" if path == delegated else b"0")
    found = Containment(Wanted.CGROUP, "abc", found=fake.found("agent.service/main"))
    assert found.limits_all
    assert f"'{delegated}/hocket-abc'" in found.text


def test_a_cgroup_above_of_the_same_user_is_ours_to_change(fake: FakeV2, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.cgroup("", passes="memory")
    fake.cgroup("user.slice", passes="memory")
    fake.cgroup("user.slice/app.scope", "memory", procs=f"{os.getpid()} 1")
    user = os.getuid() or 1000
    if user != os.getuid():
        os.chown(fake.root / "user.slice", user, -1)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = Containment(Wanted.CGROUP, "abc", found=fake.found("user.slice/app.scope"))
    assert f"'{fake.root}/user.slice/hocket-abc'" in found.text


def test_where_no_controllers_are_passed_on_jobs_are_killed_but_not_limited(fake: FakeV2) -> None:
    fake.cgroup("", procs="1")
    found = Containment(Wanted.AUTO, "abc", found=fake.found(""))
    assert (found.limits_all, found.kind) == (False, "cgroup v2, no memory or CPU limits")
    assert found.text.endswith(f"cgroup '{fake.root}' has other processes: start the agent in one of its own")
    with pytest.raises(ValueError, match="has other processes"):
        Containment(Wanted.CGROUP, "abc", found=fake.found(""))


@pytest.mark.usefixtures("real")
def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "identity").write_text(identity := uuid.uuid4().hex)
    try:
        found = Containment(Wanted.CGROUP, identity)
        found.close()
        made = found.create(RunKey("j", 1), uuid.uuid4().hex, RunLimits(mem_mib=64.0))
        assert made is not None
        assert made.limit_mib() == 64.0
        found.remove(made)
    finally:
        remove_cgroups(tmp_path)


@pytest.mark.usefixtures("real")
def test_a_cgroup_that_is_busy_is_removed_later(tmp_path: Path, until: Any, monkeypatch: Any) -> None:
    (tmp_path / "identity").write_text(identity := uuid.uuid4().hex)
    try:
        found = Containment(Wanted.CGROUP, identity)
        made = found.create(RunKey("j", 1), uuid.uuid4().hex, RunLimits())
        assert made is not None
        with child([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=made.enter) as busy:
            with monkeypatch.context() as immortal:
                immortal.setattr(Cgroup, "kill", lambda _: None)
                found.remove(made)
                assert found.tick() != []
            until(lambda: found.tick() == [], "it is killed and removed")
            assert busy.wait() == -signal.SIGKILL
    finally:
        remove_cgroups(tmp_path)


# -- where cgroups are ---------------------------------------------------------------------------------------


def written(tmp_path: Path, own: str, mounts: str) -> list[Hierarchy]:
    (tmp_path / "cgroup").write_text(own)
    (tmp_path / "mountinfo").write_text(mounts)
    return hierarchies(str(tmp_path / "cgroup"), str(tmp_path / "mountinfo"))


def test_hierarchies_of_both_versions_are_found(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        "4:memory:/a\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice/me\n",
        "25 1 0:20 / /proc rw - proc proc rw\n"
        "33 25 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "34 33 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 33 0:32 / /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n"
        "36 33 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        "37 33 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    assert found == [
        Hierarchy(frozenset({"cpu", "cpuacct"}), False, "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
        Hierarchy(frozenset({"memory"}), False, "/sys/fs/cgroup/my memory", "/sys/fs/cgroup/my memory/a"),
        Hierarchy(frozenset(), True, "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/user.slice/me"),
    ]
    assert found[2].upward()[1:] == ["/sys/fs/cgroup/unified/user.slice", "/sys/fs/cgroup/unified"]


def test_a_container_sees_a_part_of_a_hierarchy(tmp_path: Path) -> None:
    mount = "34 33 0:31 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (found,) = written(tmp_path, "0::/docker/1/me\n", mount)
    assert (found.mount, found.own) == ("/sys/fs/cgroup", "/sys/fs/cgroup/me")
    assert written(tmp_path, "0::/../elsewhere\n", mount) == [], "we are not in the part that is mounted"


def test_a_spec_without_a_cgroup_names_none() -> None:
    assert cgroup_of({}) is None
    assert cgroup_of({"cgroup": None}) is None
    assert cgroup_of({"cgroup": {MEMORY: "/x"}}) is None
