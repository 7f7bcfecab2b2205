"""However a job is ended, and whatever it does about that, nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.orphan_cleanup import kill_orphans, orphans
from hocket.agent.process_tree import process

SAVES = """
import os, signal, sys, time
def save(number, frame):
    print('saving on', signal.Signals(number).name)
    open('saved', 'w').close()
    if number == signal.SIGUSR2:
        return
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, save)
print('training')
while True: time.sleep(0.01)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print('no'))
print('training')
while True: time.sleep(0.01)
"""


def is_alive(pid: int) -> bool:
    return process(pid) is not None


# -- orders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_job_is_asked_by_its_signal_to_save_and_end(run_python: Any, name: str) -> None:
    job = run_python(SAVES, stop_signal=name)
    job.wait_for_text("training\n")
    job.send("stop", grace_s=25)
    end = job.finish()
    assert job.log() == f"training\nsaving on {name}\n"
    assert (end["code"], end["asked"], end["killed"], end["hung"]) == (0, True, False, False)
    assert 0 <= end["after_s"] < 25
    assert job.wait_for("checkpoint-asked").items() >= {"then": "stop", "signal": name, "grace_s": 25}.items()


def test_a_job_can_be_asked_to_save_and_go_on(run_python: Any) -> None:
    # The helper in its group knows nothing of the signal, and must not die of it.
    job = run_python(
        f"import subprocess\nhelper = subprocess.Popen(['sleep', '60'])\n{SAVES}", checkpoint_signal="SIGUSR2"
    )
    job.wait_for_text("training\n")
    job.send("checkpoint")
    job.wait_for_text("saving on SIGUSR2")
    assert job.wait_for("checkpoint-asked").items() >= {"then": "go-on", "signal": "SIGUSR2"}.items()
    alive = orphans(job.mark)
    assert len(alive) == 2
    job.send("stop")
    assert job.finish()["code"] == 0
    assert not [pid for pid in alive if is_alive(pid)]


def test_a_job_that_ignores_its_signal_is_killed_after_the_grace(run_python: Any) -> None:
    job = run_python(DEAF)
    job.wait_for_text("training\n")
    job.send("stop", grace_s=0.3)
    end = job.finish()
    assert job.events("checkpoint-asked")[0]["grace_s"] == 0.3
    assert (end["signal"], end["asked"], end["killed"]) == ("SIGKILL", True, True)
    assert end["after_s"] >= 0.3


def test_a_second_stop_shortens_the_grace_and_never_extends_it(run_python: Any) -> None:
    job = run_python(DEAF)
    job.wait_for_text("training\n")
    job.send("stop", grace_s=600)
    job.wait_for_text("no\n")
    job.send("stop", grace_s=0.1)
    job.send("stop", grace_s=600)
    end = job.finish()
    assert (end["signal"], end["killed"]) == ("SIGKILL", True)
    assert job.log() == "training\nno\n", "it was asked once"
    assert len(job.events("checkpoint-asked")) == 1


def test_kill_does_not_wait_for_the_job(run_python: Any) -> None:
    job = run_python(SAVES)
    job.wait_for_text("training\n")
    job.send("kill")
    end = job.finish()
    assert job.log() == "training\n"
    assert (end["signal"], end["asked"], end["killed"]) == ("SIGKILL", True, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sidecar_told_to_leave_stops_its_job_properly(run_python: Any, number: int) -> None:
    job = run_python(SAVES)
    job.wait_for_text("training\n")
    os.kill(job.pid, number)
    end = job.finish()
    assert (end["code"], end["asked"]) == (0, True)
    assert job.log() == "training\nsaving on SIGTERM\n"


def test_a_terminal_that_goes_away_does_not_matter(run_python: Any) -> None:
    job = run_python(SAVES)
    job.wait_for_text("training\n")
    os.kill(job.pid, signal.SIGHUP)
    job.send("stop")
    assert job.finish()["code"] == 0


def test_a_program_that_outlives_its_shell_may_finish_saving(run: Any, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('saved'), sys.exit()))\n"
        "print('training', flush=True)\n"
        "while True: time.sleep(0.01)"
    )
    job = run("sh", "-c", f"{sys.executable} slow.py; true")
    job.wait_for_text("training\n")
    job.send("stop", grace_s=25)
    end = job.finish()
    assert job.log() == "training\nsaved\n"
    assert (end["signal"], end["killed"]) == ("SIGTERM", False)
    assert end["after_s"] >= 0.5


# -- hanging ------------------------------------------------------------------------------------------------


def test_a_job_without_progress_for_too_long_is_hung(run: Any) -> None:
    # A shell is ready for the signal from its first moment; Python would need a while to get there.
    job = run("sh", "-c", "trap 'echo saving; exit 0' TERM; echo training; while :; do sleep 0.1; done", hang_limit_s=3)
    end = job.finish()
    assert (end["hung"], end["asked"], end["code"]) == (True, False, 0)
    assert job.events("hung")[0]["silent_s"] == 3
    assert [line for line in job.log().splitlines() if "erminated" not in line] == ["training", "saving"]


def test_a_hung_job_that_ignores_its_signal_is_killed(run: Any) -> None:
    end = run("sh", "-c", "trap '' TERM; exec sleep 600", hang_limit_s=2, grace_s=0.2).finish()
    assert (end["hung"], end["killed"], end["signal"]) == (True, True, "SIGKILL")


def test_where_no_progress_is_read_a_job_that_prints_is_not_hung(run_python: Any) -> None:
    # It prints for longer than the limit, which is far longer than a busy machine keeps it from printing.
    end = run_python("import time\nfor n in range(110): print(n); time.sleep(0.1)", hang_limit_s=10).finish()
    assert (end["hung"], end["code"]) == (False, 0)


# -- children -----------------------------------------------------------------------------------------------

CHILDREN = """
import os, subprocess, sys, time
stay = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'
plain = subprocess.Popen([sys.executable, '-c', stay])
away = subprocess.Popen([sys.executable, '-c', stay], start_new_session=True)
wiped = subprocess.Popen([sys.executable, '-c', stay], start_new_session=True, env={})
up, is_up = os.pipe()
if os.fork() == 0:  # twice, as daemons do
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(1, f'daemon {os.getpid()}\\n'.encode())
    os.write(is_up, b'.')
    time.sleep(600)
os.read(up, 1)
os.write(1, f'plain {plain.pid}\\naway {away.pid}\\nwiped {wiped.pid}\\nready\\n'.encode())
"""


def pids_in(log: str) -> dict[str, int]:
    return {line.split()[0]: int(line.split()[1]) for line in log.splitlines() if " " in line}


@pytest.mark.parametrize("how", ["by itself", "stop", "kill"])
def test_what_a_job_started_is_gone_when_it_is_over(run_python: Any, how: str) -> None:
    job = run_python(CHILDREN + ("" if how == "by itself" else "time.sleep(600)"))
    job.wait_for_text("ready\n")
    if how != "by itself":
        job.send(how, grace_s=0.2)
    end = job.finish()
    assert end["code"] == (0 if how == "by itself" else None)
    pids = pids_in(job.log())
    assert pids.keys() == {"plain", "away", "wiped", "daemon"}
    assert not {name: pid for name, pid in pids.items() if is_alive(pid)}


def test_children_that_keep_forking_are_caught_up_with(run_python: Any) -> None:
    job = run_python(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    end_s = time.time() + 300\n"
        "    while time.time() < end_s:\n"
        "        if os.fork(): os._exit(0)\n"
        "        time.sleep(0.002)\n"
        "time.sleep(0.3)"
    )
    job.finish()
    assert orphans(job.mark) == []


def test_a_job_dies_with_its_sidecar_and_what_it_started_can_be_found(run_python: Any, until: Any) -> None:
    job = run_python(CHILDREN + "time.sleep(600)")
    job.wait_for_text("ready\n")
    (worker,) = job.wait_for("started")["pids"]
    assert is_alive(worker)
    job.sidecar.kill()
    job.sidecar.wait()
    until(lambda: not is_alive(worker))
    pids = pids_in(job.log())
    try:
        found = orphans(job.mark, [worker])
        assert {pids["plain"], pids["away"], pids["daemon"]} <= set(found)
        assert kill_orphans(job.mark, [worker]) == []
        assert not [name for name in ("plain", "away", "daemon") if is_alive(pids[name])]
    finally:
        os.kill(pids["wiped"], signal.SIGKILL)  # Only a sidecar can know it: no mark, no session, no parent.


def test_the_exit_code_is_the_jobs_though_a_child_holds_its_output(run_python: Any) -> None:
    job = run_python(
        "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\nprint('x')\nraise SystemExit(5)"
    )
    assert job.finish()["code"] == 5
    assert job.log() == "x\n"
