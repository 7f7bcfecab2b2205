"""The agent that a controller has on its own machine: real ones, whose controller is away."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.children import child
from tests.whole_lines import whole_lines

from hocket.agent import run_folder
from hocket.agent.node.events_reader import story
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.orphan_cleanup import kill_orphans
from hocket.agent.process_tree import process
from hocket.agent.run_folder import LOCK
from hocket.service import local_agent
from hocket.service.home import Home
from hocket.service.local_agent import LocalAgent, agents_of

NO_CONTROLLER = "http://127.0.0.1:9"  # discards; nothing listens there


def awaited(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    home.make()
    yield home
    for pid in agents_of(str(home.agent)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def job(home: Home) -> Iterator[str]:
    """The folder of a run that goes on; an earlier agent left it."""
    state = StateFolder(str(home.agent))
    folder = state.make_run("sleeper", 1)
    os.close(state._lock)
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    spec = {"job": "sleeper", "attempt": 1, "mark": f"test-{os.getpid()}", "argv": argv, "cwd": "/", "grace_s": 1.0}
    run_folder.create(folder, spec)
    sidecar = run_folder.launch(folder)
    try:
        awaited(lambda: story(f"{folder}/{run_folder.EVENTS}").started)
        yield folder
    finally:
        sidecar.kill()
        sidecar.wait()
        assert kill_orphans(spec["mark"]) == []


@pytest.mark.slow
def test_an_agent_does_not_run_what_lies_where_its_controller_was_started(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "here" / "argparse.py"
    trap.parent.mkdir()
    trap.write_text("from pathlib import Path\nPath(__file__).with_suffix('.was-run').touch()\n")
    monkeypatch.chdir(trap.parent)
    agent = LocalAgent(home, NO_CONTROLLER, ["--gpus", "1"])
    agent.start()
    was_run, lock = trap.with_suffix(".was-run"), home.agent / LOCK
    awaited(lambda: was_run.exists() or bool(whole_lines(lock)))
    agent.stop(60.0)
    assert not was_run.exists()


@pytest.mark.slow
def test_an_agent_that_is_stopped_before_it_is_ready_stops_the_jobs(home: Home, job: str) -> None:
    agent = LocalAgent(home, NO_CONTROLLER, ["--gpus", "1"])
    agent.start()
    agent.stop(60.0)
    assert not run_folder.is_running(job)
    assert not agents_of(str(home.agent))


@pytest.mark.slow
def test_an_agent_that_dies_as_it_is_stopped_has_another_stop_the_jobs(home: Home, job: str) -> None:
    agent = LocalAgent(home, NO_CONTROLLER, ["--gpus", "1"])
    agent.start()
    awaited(lambda: len(agents_of(str(home.agent))) == 1)  # For a moment, a new process has no command line.
    (pid,) = agents_of(str(home.agent))
    os.kill(pid, signal.SIGKILL)
    agent.stop(60.0)
    assert not run_folder.is_running(job)
    assert not agents_of(str(home.agent))


@pytest.mark.slow
def test_an_agent_that_has_to_do_without_a_sidecar_is_given_the_time_to_kill_its_job(home: Home, job: str) -> None:
    (worker,) = story(f"{job}/{run_folder.EVENTS}").pids
    os.kill(int(whole_lines(Path(job, LOCK))[0]), signal.SIGSTOP)
    agent = LocalAgent(home, NO_CONTROLLER, ["--gpus", "1"])
    agent.start()
    agent.stop(0.0)
    assert not run_folder.is_running(job)
    assert process(worker) is None
    assert not agents_of(str(home.agent))


@pytest.mark.slow
def test_the_agent_of_an_earlier_controller_leaves_though_nothing_says_that_it_is_there(home: Home) -> None:
    where = ["--url", NO_CONTROLLER, "--token-file", str(home.token_file), "--state", str(home.agent)]
    with child([sys.executable, "-m", "hocket.agent.node", *where]) as earlier:
        awaited(lambda: agents_of(str(home.agent)) == [earlier.pid])
        later = LocalAgent(home, NO_CONTROLLER, ["--gpus", "1"])
        later.start()
        assert earlier.wait() in (0, -signal.SIGTERM)
    later.stop(60.0)
    assert not agents_of(str(home.agent))


@pytest.mark.slow
def test_an_agent_that_does_not_leave_is_killed_and_gone_before_another_begins(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_agent, "_LEAVE_S", 5.0)
    where = ["--url", NO_CONTROLLER, "--token-file", str(home.token_file), "--state", str(home.agent)]
    with child([sys.executable, "-m", "hocket.agent.node", *where]) as earlier:
        awaited(lambda: agents_of(str(home.agent)) == [earlier.pid])
        earlier.send_signal(signal.SIGSTOP)
        there: list[list[int]] = []

        def popen(*_: Any, **__: Any) -> SimpleNamespace:
            there.append(agents_of(str(home.agent)))
            return SimpleNamespace(pid=0)

        monkeypatch.setattr(local_agent.subprocess, "Popen", popen)
        LocalAgent(home, NO_CONTROLLER, [])._launch()
        monkeypatch.undo()
        assert there == [[]]
        # It was told to leave first; which of the two is told of, of one that stood still, the kernel decides.
        assert earlier.wait() in (-signal.SIGKILL, -signal.SIGTERM)
