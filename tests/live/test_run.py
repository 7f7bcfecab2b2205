"""`hocket run`: what a job prints, Ctrl-C to it, and its exit code, with a real controller and real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.children import child
from tests.live.controller import LiveController, awaited

STUBBORN = """
import os, signal, sys, time
def told(*_):
    print("told to stop", flush=True)
    if sys.argv[1] == "leaves":
        sys.exit(0)
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
print("last words", flush=True)
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[LiveController]:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    with LiveController(tmp_path, "--gpus", "2", "--policy", "fifo") as found:
        found.begin()
        yield found
        found.down(grace_s=0.0)


def environment(controller: LiveController) -> dict[str, str]:
    return {**os.environ, "HOCKET_HOME": str(controller.home), "COLUMNS": "300"}


def ran(controller: LiveController, code: int, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hocket", "run", *args]
    env = environment(controller)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, cwd=controller.root)
    assert done.returncode == code, (args, done.stdout, done.stderr)
    return done


@contextmanager
def running(controller: LiveController, name: str, how: str) -> Iterator[subprocess.Popen[bytes]]:
    script = (sys.executable, "stubborn.py", how)
    command = [sys.executable, "-m", "hocket", "run", "-n", name, "--grace", "600s", "--", *script]
    out, err = ((controller.root / f"{name}.{kind}").open("wb") for kind in ("out", "err"))
    with out, err:
        env = environment(controller)
        with child(command, stdout=out, stderr=err, env=env, cwd=controller.root, start_new_session=True) as found:
            yield found


def await_text(controller: LiveController, file: str, text: str) -> None:
    awaited(lambda: text in (controller.root / file).read_text(), f"{file} says {text!r}")


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_program(controller: LiveController) -> None:
    python = ("--", sys.executable, "-c")
    well = ran(controller, 0, "-n", "well", *python, "print('out'); import sys; print('err', file=sys.stderr)")
    assert sorted(well.stdout.splitlines()) == ["err", "out"]
    assert well.stderr == "hocket: job 'well' is submitted\n"
    assert "job 'bad' failed: exit code 7" in ran(controller, 7, "-n", "bad", *python, "raise SystemExit(7)").stderr
    ran(controller, 128 + signal.SIGKILL, *python, "import os; os.kill(os.getpid(), 9)")
    missed = ran(controller, 5, "--until", "acc >= 90%", *python, "print('epoch 1/1 acc=0.5', flush=True)")
    assert "acc was 0.5" in missed.stderr
    again = ran(controller, 3, "--retries", "1", "--backoff", "0s", *python, "print('once'); raise SystemExit(3)")
    assert again.stdout == "once\nonce\n"
    assert "run follows one job" in ran(controller, 2, "--array", "3", *python, "pass").stderr


@pytest.mark.slow
def test_ctrl_c_asks_the_job_to_stop_and_a_second_one_leaves(controller: LiveController) -> None:
    with running(controller, "gentle", "leaves") as command:
        await_text(controller, "gentle.out", "ready")
        command.send_signal(signal.SIGINT)
        assert command.wait(600) == 130
    assert (controller.root / "gentle.out").read_text() == "ready\ntold to stop\n"
    assert controller.jobs()["gentle"]["state"] == "stopped"

    with running(controller, "deaf", "stays") as command:
        await_text(controller, "deaf.out", "ready")
        command.send_signal(signal.SIGINT)
        await_text(controller, "deaf.out", "told to stop")
        await_text(controller, "deaf.err", "Ctrl-C again leaves at once")
        command.send_signal(signal.SIGINT)
        assert command.wait(600) == 130
    assert "`hocket logs -f deaf` follows it again" in (controller.root / "deaf.err").read_text()
    assert controller.jobs()["deaf"]["state"] == "ending"


@pytest.mark.slow
def test_a_controller_that_comes_back_is_followed_on(controller: LiveController) -> None:
    with running(controller, "net", "leaves") as command:
        await_text(controller, "net.out", "ready")
        controller.kill()
        await_text(controller, "net.err", "trying again for two minutes")
        controller.begin()
        (controller.root / "go").touch()
        assert command.wait(600) == 0
    assert (controller.root / "net.out").read_text() == "ready\nlast words\n"
