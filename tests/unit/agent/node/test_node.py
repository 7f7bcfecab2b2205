"""What the controller orders is done, and what happens is reported."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.process_tree import process
from hocket.agent.protocol import ForgetJob, ReadLog, RunKey, SaveRun, StartRun, StopRun

FOR_EVER = "import time\nprint('up')\ntime.sleep(600)"


@pytest.mark.usefixtures("agent")
def test_a_node_joins_with_what_it_has(controller: Any) -> None:
    node = controller.hellos[0].node
    assert (node.id, node.gpus) == ("n0", 4)
    assert node.cores == len(os.sched_getaffinity(0))
    assert node.mem_mib > 100
    assert controller.hellos[0].address == "127.0.0.1"
    assert controller.hellos[0].runs == ()


def test_a_run_is_told_from_its_start_to_its_exit_code(controller: Any, agent: Any) -> None:
    program = "import os, sys\nprint('epoch 1 acc=0.5')\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\nsys.exit(7)"
    key = controller.run_python("j", program, env={"CUDA_VISIBLE_DEVICES": "2,3"}, progress={"kind": "stdout"})
    assert controller.wait_for(key, "exited").fields["code"] == 7
    assert [r.n for r in controller.of(key)] == list(range(1, len(controller.of(key)) + 1))
    progress = controller.of(key, "progress")
    assert progress[0].fields["epoch"] == 1
    assert progress[0].fields["metrics"] == {"acc": 0.5}
    assert (agent.folder() / "log").read_text() == "epoch 1 acc=0.5\n2,3\n"


def test_a_run_gets_its_own_folders(controller: Any, agent: Any) -> None:
    program = (
        "import os\nprint(os.getcwd(), *(os.environ['HOCKET_' + n] for n in ('CHECKPOINT_DIR', 'JOB', 'ATTEMPT')))"
    )
    key = controller.run_python("my.job", program, number=3, cwd="")
    controller.wait_for(key, "exited")
    work, checkpoints, job, attempt = (agent.folder(3) / "log").read_text().split()
    assert work == str(agent.state / "work" / "my%2Ejob")
    assert checkpoints == str(agent.state / "checkpoints" / "my%2Ejob")
    assert (job, attempt) == ("my.job", "3")
    for path in [agent.state, *agent.state.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_stopped_run_saves_and_ends(controller: Any, agent: Any) -> None:
    program = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    open(os.environ['HOCKET_CHECKPOINT_DIR'] + '/saved', 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('epoch 1 acc=0.1')\n"
        "time.sleep(600)"
    )
    key = controller.run_python("j", program, progress={"kind": "stdout"})
    controller.wait_for(key, "progress")
    controller.order(StopRun(key, 20.0))
    exited = controller.wait_for(key, "exited")
    assert exited.fields["asked"]
    assert exited.fields["code"] == 0
    assert (agent.state / "checkpoints" / "j" / "saved").exists()


@pytest.mark.usefixtures("agent")
def test_a_run_can_be_stopped_before_its_sidecar_listens(controller: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    controller.order(StopRun(key, 1.0))
    assert controller.wait_for(key, "exited").fields["asked"]


def test_a_run_can_be_asked_to_save_and_goes_on(controller: Any, agent: Any, until: Any) -> None:
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('saved'))\n"
        "print('epoch 1 acc=0.1')\n"
        "while True: time.sleep(600)"
    )
    key = controller.run_python("j", program, progress={"kind": "stdout"}, checkpoint_signal="SIGUSR1")
    controller.wait_for(key, "progress")
    controller.order(SaveRun(key))
    assert controller.wait_for(key, "checkpoint-asked").fields["then"] == "go-on"
    until(lambda: "saved" in (agent.folder() / "log").read_text())


@pytest.mark.usefixtures("agent")
def test_a_run_that_cannot_start_says_why(controller: Any) -> None:
    key = controller.run("j", 1, "/no/such/program")
    assert "/no/such/program" in controller.wait_for(key, "cannot-start").fields["reason"]
    bad = controller.run("k", 1, "true", stop_signal="SIGKILL")
    assert "stop_signal" in controller.wait_for(bad, "cannot-start").fields["reason"]


def test_a_run_folder_that_cannot_be_made_is_reported(controller: Any, agent: Any) -> None:
    blocked = agent.state / "runs" / "j"
    blocked.write_text("in the way")
    blocked_key = RunKey("j", 1)
    order = StartRun(blocked_key, {"argv": ["true"]}, {})
    controller.order(order)
    assert "j" in controller.wait_for(blocked_key, "cannot-start").fields["reason"]
    blocked.unlink()
    controller.order(order)  # The controller was told that it cannot start, so it must not run.
    controller.wait_for(blocked_key, "cannot-start", 2)
    assert agent.folders() == []
    again = controller.run("j", 2, "true")
    controller.wait_for(again, "exited")


# -- orders that come twice, or too late ----------------------------------------------------------------------


def test_a_run_that_is_ordered_twice_is_started_once_and_told_twice(controller: Any, agent: Any) -> None:
    key = controller.run_python("j", FOR_EVER)
    first = controller.wait_for(key, "started")
    controller.run_python("j", FOR_EVER)
    assert controller.wait_for(key, "started", 2) == first
    controller.order(StopRun(key, 0.0))
    controller.wait_for(key, "exited")
    controller.run_python("j", FOR_EVER)
    assert controller.wait_for(key, "exited", 2) == controller.wait_for(key, "exited")
    assert controller.wait_for(key, "started", 3) == first
    assert len(agent.folders()) == 1


def test_a_later_run_ends_an_older_one_first(controller: Any, agent: Any) -> None:
    old = controller.run_python("j", FOR_EVER)
    pid = controller.wait_for(old, "started").fields["pids"][0]
    new = controller.run_python("j", f"import os\nprint(os.path.exists('/proc/{pid}'))", number=2)
    controller.wait_for(new, "exited")
    assert controller.wait_for(old, "exited").fields["signal"] == "SIGKILL"
    assert (agent.folder(2) / "log").read_text() == "False\n"
    late = controller.run_python("j", FOR_EVER, number=1)
    assert controller.wait_for(late, "exited", 2)


@pytest.mark.usefixtures("agent")
def test_what_is_not_known_is_lost(controller: Any) -> None:
    controller.order(StopRun(RunKey("nobody", 4), 1.0), SaveRun(RunKey("no one", 1)), ForgetJob("never seen"))
    assert controller.wait_for(RunKey("nobody", 4), "lost").n == 0
    assert controller.wait_for(RunKey("no one", 1), "lost").n == 0


# -- prepared -------------------------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("import decimal\nimport os\nprint(os.environ['CUDA_VISIBLE_DEVICES'], 'is mine')\n")
    return str(path)


def test_a_prepared_run_is_handed_over(controller: Any, agent: Any, script: str) -> None:
    key = controller.prepare("j", 1, sys.executable, script)
    assert controller.wait_for(key, "prepared").fields["warm"]
    assert controller.of(key, "started") == []
    controller.run("j", 1, sys.executable, script, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert controller.wait_for(key, "started").fields["warm"]
    controller.wait_for(key, "exited")
    assert (agent.folder() / "log").read_text() == "1 is mine\n"


@pytest.mark.usefixtures("agent")
def test_a_run_is_prepared_while_the_one_before_it_still_runs(controller: Any, script: str) -> None:
    old = controller.run_python("j", FOR_EVER)
    controller.wait_for(old, "started")
    new = controller.prepare("j", 2, sys.executable, script)
    controller.wait_for(new, "prepared")
    assert controller.of(old, "exited") == []
    controller.order(StopRun(old, 0.0))
    controller.wait_for(old, "exited")
    controller.run("j", 2, sys.executable, script, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert controller.wait_for(new, "started").fields["warm"]
    controller.wait_for(new, "exited")


def test_a_run_whose_prepared_sidecar_died_starts_cold(controller: Any, agent: Any, script: str) -> None:
    key = controller.prepare("j", 1, sys.executable, script)
    controller.wait_for(key, "prepared")
    os.kill(agent.sidecar(), signal.SIGKILL)
    gone = controller.wait_for(key, "prepared", 2)
    assert (gone.n, gone.fields["warm"]) == (0, False)
    controller.run("j", 1, sys.executable, script, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert not controller.wait_for(key, "started").fields["warm"]
    assert controller.wait_for(key, "exited").fields["code"] == 0
    assert (agent.folder() / "log").read_text() == "1 is mine\n"
    assert controller.of(key, "lost") == []


def test_a_prepared_run_cannot_start_after_a_later_one(controller: Any, agent: Any, script: str) -> None:
    first = controller.prepare("j", 1, sys.executable, script)
    controller.wait_for(first, "prepared")
    os.kill(agent.sidecar(), signal.SIGKILL)
    controller.wait_for(first, "prepared", 2)
    second = controller.run_python("j", FOR_EVER, number=2)
    controller.wait_for(second, "started")
    controller.run("j", 1, sys.executable, script)
    controller.wait_for(first, "lost")
    assert controller.of(first, "started") == []
    assert controller.of(second, "exited") == []


@pytest.mark.usefixtures("agent")
def test_a_prepared_run_that_is_not_wanted_is_stopped(controller: Any, script: str) -> None:
    key = controller.prepare("j", 1, sys.executable, script)
    pid = controller.wait_for(key, "prepared").fields["pids"][0]
    controller.order(StopRun(key, 5.0))
    assert controller.wait_for(key, "exited").fields["asked"]
    assert process(pid) is None


def test_a_prepared_run_whose_sidecar_dies_while_it_is_stopped_is_lost(
    controller: Any, agent: Any, script: str
) -> None:
    key = controller.prepare("j", 1, sys.executable, script)
    controller.wait_for(key, "prepared")
    os.kill(agent.sidecar(), signal.SIGSTOP)  # It has the order, and does not come to it.
    controller.order(StopRun(key, 5.0))
    after = controller.run_python("k", "pass")
    controller.wait_for(after, "started")  # Orders are carried out one after the other.
    os.kill(agent.sidecar(), signal.SIGKILL)
    controller.wait_for(key, "lost")
    assert len(controller.of(key, "prepared")) == 1, "it cannot be started any more"


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("again", ["prepare", "run"])
def test_a_prepared_run_that_was_let_go_can_begin_again(controller: Any, script: str, again: str) -> None:
    key = controller.prepare("j", 1, sys.executable, script)
    controller.wait_for(key, "prepared")
    controller.order(StopRun(key, 5.0))
    before = controller.wait_for(key, "exited").n
    if again == "prepare":
        controller.prepare("j", 1, sys.executable, script)
        assert controller.wait_for(key, "prepared", 2).n > before
    controller.run("j", 1, sys.executable, script, env={"CUDA_VISIBLE_DEVICES": "1"})
    started = controller.wait_for(key, "started")
    assert (started.n > before, started.fields["warm"]) == (True, again == "prepare")
    assert controller.wait_for(key, "exited", 2).fields["code"] == 0
    assert controller.of(key, "warning") == []


# -- logs and names -------------------------------------------------------------------------------------------


def read(controller: Any, job: str, offset: int, limit: int = 1 << 20, number: int = 0) -> tuple[int, int, bytes]:
    request = f"r{len(controller.logs)}/?"
    controller.order(ReadLog(request, job, number, offset, limit))
    headers, data = controller.wait_until(lambda: controller.logs.get(request), "a log")
    assert int(headers["X-Next-Offset"]) == int(headers["X-Offset"]) + len(data)
    return int(headers["X-Attempt"]), int(headers["X-Offset"]), data


@pytest.mark.usefixtures("agent")
def test_logs_are_read_from_any_place_of_any_run(controller: Any) -> None:
    first = controller.run_python("j", "print('0123456789', end='')")
    controller.wait_for(first, "exited")
    second = controller.run_python("j", "print('second', end='')", number=2)
    controller.wait_for(second, "exited")
    assert read(controller, "j", 0) == (2, 0, b"second")
    assert read(controller, "j", 0, number=1) == (1, 0, b"0123456789")
    assert read(controller, "j", 3, 4, number=1) == (1, 3, b"3456")
    assert read(controller, "j", -4, number=1) == (1, 6, b"6789")
    assert read(controller, "j", -400, number=1) == (1, 0, b"0123456789")
    assert read(controller, "j", 400, number=1) == (1, 10, b"")
    assert read(controller, "j", 0, number=9) == (0, 0, b"")
    assert read(controller, "nobody", 0) == (0, 0, b"")


@pytest.mark.usefixtures("agent")
def test_a_log_that_was_rotated_is_read_across_its_files(controller: Any) -> None:
    printed = "".join(f"{n:09d}\n" for n in range(2000)).encode()
    program = "for n in range(2000): print(f'{n:09d}')"
    controller.wait_for(controller.run_python("j", program, log_bytes=4096, log_kept=2), "exited")
    _, begin, data = read(controller, "j", 0)
    assert 0 < begin < len(printed) - 8000
    assert data == printed[begin:]
    assert read(controller, "j", -5000) == (1, len(printed) - 5000, printed[-5000:])
    assert read(controller, "j", begin + 4000, 500) == (1, begin + 4000, printed[begin + 4000 : begin + 4500])


NAMES = ("..", ".", "a b", "ü", "-rf", "$(id)", "%2e%2e", "j\\..", "x" * 200, "𝔘" * 200, "~", "a'b\"c")


def test_a_job_may_have_any_name(controller: Any, agent: Any, until: Any) -> None:
    keys = [controller.run("" + name, 1, "true") for name in NAMES]
    for key in keys:
        assert controller.wait_for(key, "exited").fields["code"] == 0
    assert len(list((agent.state / "runs").iterdir())) == len(NAMES)
    own = ["checkpoints", "containment", "identity", "lease", "lock", "runs", "starts", "work"]
    assert sorted(p.name for p in agent.state.iterdir()) == own
    assert sorted(p.name for p in agent.state.parent.iterdir()) == ["agent.err", "state", "token"]
    for key in keys:
        assert read(controller, key.job, 0)[1:] == (0, b"")
    controller.order(*(ForgetJob(key.job) for key in keys))
    controller.wait_for(controller.run("last", 1, "true"), "exited")
    until(lambda: len(agent.folders()) == 1, "all forgotten but the last")
    assert agent.folders() == [agent.state / "runs" / "last" / "1"]


def test_of_a_forgotten_job_the_logs_remain_and_nothing_runs(controller: Any, agent: Any, until: Any) -> None:
    controller.wait_for(controller.run_python("j", "print('one')"), "exited")
    key = controller.run_python("j", FOR_EVER, number=2)
    pid = controller.wait_for(key, "started").fields["pids"][0]
    until(lambda: (agent.folder(2) / "log").exists())
    controller.order(ForgetJob("j"))
    kept = agent.state / "runs" / "j"
    until(lambda: sorted(p.name for p in kept.rglob("*") if p.is_file()) == ["forgotten", "log", "log"], "only logs")
    assert process(pid) is None
    assert read(controller, "j", 0, number=1) == (1, 0, b"one\n")
    assert controller.of(key, "exited") == []
