"""Secrets of a run are in the environment of its processes, and in no file of the node."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.whole_lines import whole_lines

from hocket.agent.protocol import PrepareRun, RunKey, StartRun

VALUE = "s3cr3t-ü\n-of-ana"
RUN = RunKey("j", 1)
LENGTH = f"{len(VALUE)} characters, and nothing to read"


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Says how long the secret is, and goes on until a file is there."""
    path = tmp_path / "train.py"
    path.write_text(
        "import os, sys, time\n"
        "print(len(os.environ['HF_TOKEN']), 'characters, and', sys.stdin.read() or 'nothing to read', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'end')!r}):\n    time.sleep(0.01)\n"
    )
    return str(path)


def start(script: str) -> StartRun:
    spec = {"argv": [sys.executable, script], "env": {"PLAIN": "1"}}
    return StartRun(RUN, spec, {"CUDA_VISIBLE_DEVICES": "0"}, {"HF_TOKEN": VALUE})


def files_with_it(agent: Any) -> list[Path]:
    words = [VALUE.encode(), VALUE.splitlines()[0].encode(), b"s3cr3t"]
    files = [path for path in [*agent.state.rglob("*"), agent.complaints] if path.is_file()]
    return [path for path in files if any(word in path.read_bytes() for word in words)]


def runs_with_it(controller: Any, agent: Any, until: Any) -> None:
    """The run has the secret, and nothing else on the node has."""
    controller.wait_for(RUN, "started")
    until(lambda: LENGTH in whole_lines(agent.folder() / "log"), "its output")
    assert files_with_it(agent) == []
    sidecar = agent.sidecar()
    assert b"s3cr3t" not in Path(f"/proc/{sidecar}/cmdline").read_bytes()
    assert os.readlink(f"/proc/{sidecar}/fd/0") == "/dev/null"
    assert not any("memfd" in os.readlink(fd) for fd in Path(f"/proc/{sidecar}/fd").iterdir() if fd.is_symlink())


def ends(controller: Any, tmp_path: Path, agent: Any) -> None:
    (tmp_path / "end").touch()
    assert controller.wait_for(RUN, "exited").fields["code"] == 0
    assert (agent.folder() / "log").read_text().count(LENGTH) == 1, "it was started once"


def test_a_run_has_its_secrets_and_survives_its_agent(
    controller: Any, agent: Any, script: str, tmp_path: Path, until: Any
) -> None:
    controller.order(start(script))
    runs_with_it(controller, agent, until)
    agent.kill()
    agent.start()
    assert controller.wait_for_hellos(2).runs == (RUN,)
    controller.order(start(script))
    controller.wait_for(RUN, "started", 2)  # It is told again.
    ends(controller, tmp_path, agent)
    assert files_with_it(agent) == []


def test_a_prepared_run_gets_them_when_it_starts(
    controller: Any, agent: Any, script: str, tmp_path: Path, until: Any
) -> None:
    controller.order(PrepareRun(RUN, start(script).spec))
    assert controller.wait_for(RUN, "prepared").fields["warm"]
    controller.order(start(script))
    runs_with_it(controller, agent, until)
    agent.kill()
    agent.start()
    controller.wait_for_hellos(2)
    controller.order(start(script))
    controller.wait_for(RUN, "started", 2)
    ends(controller, tmp_path, agent)
    assert controller.of(RUN, "warning") == []


def test_a_prepared_run_whose_agent_dies_before_it_starts_gets_them_from_the_next(
    controller: Any, agent: Any, script: str, tmp_path: Path, until: Any
) -> None:
    controller.order(PrepareRun(RUN, start(script).spec))
    controller.wait_for(RUN, "prepared")
    os.kill(agent.sidecar(), signal.SIGSTOP)  # The order does not get through.
    controller.order(start(script))
    until(lambda: "continues in its prepared process" in agent.said(), "the order")
    agent.kill()
    assert files_with_it(agent) == []
    os.kill(agent.sidecar(), signal.SIGCONT)
    agent.start()
    controller.wait_for_hellos(2)
    controller.order(start(script))
    runs_with_it(controller, agent, until)
    ends(controller, tmp_path, agent)


def test_a_prepared_run_that_starts_cold_has_them(
    controller: Any, agent: Any, script: str, tmp_path: Path, until: Any
) -> None:
    controller.order(PrepareRun(RUN, start(script).spec))
    controller.wait_for(RUN, "prepared")
    os.kill(agent.sidecar(), signal.SIGKILL)
    controller.wait_for(RUN, "prepared", 2)
    controller.order(start(script))
    assert not controller.wait_for(RUN, "started").fields["warm"]
    runs_with_it(controller, agent, until)
    ends(controller, tmp_path, agent)
