"""An agent's folder: what is forgotten stays so, wherever the agent was killed over it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hocket.agent import run_folder
from hocket.agent.node import state_folder
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.run_folder import InUse


class Killed(BaseException):
    """As far as an agent came."""


def folder_of_two_runs(path: Path) -> Path:
    """A job with two runs, each with a log and a secret."""
    state = StateFolder(str(path))
    for number in (1, 2):
        run = Path(state.make_run("j", number))
        (run / "log").write_text(f"run {number}\n")
        (run / "spec.json").write_text('{"env": {"TOKEN": "secret"}}')
    os.close(state._lock)
    return path / "runs" / "j"


def forget_and_die(path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Forget the job, and be killed after so many files were removed."""
    state, left = StateFolder(str(path)), after
    remove = state_folder.remove

    def remove_or_die(name: str) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        remove(name)

    with monkeypatch.context() as patched:
        patched.setattr(state_folder, "remove", remove_or_die)
        with pytest.raises(Killed):
            state.forget("j")
    os.close(state._lock)


@pytest.mark.parametrize("after", [0, 1])
def test_a_job_that_an_agent_was_killed_over_forgetting_is_forgotten_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    job = folder_of_two_runs(tmp_path / "state")
    forget_and_die(tmp_path / "state", monkeypatch, after)
    assert len(list(job.glob("*/spec.json"))) == 2 - after
    state = StateFolder(str(tmp_path / "state"), most_forgotten=1)
    assert sorted(path.name for path in job.rglob("*") if path.is_file()) == ["forgotten", "log", "log"]
    state.make_run("k", 1)
    state.forget("k")
    assert not job.exists(), "it counts among those that are kept, and was the first"


def test_an_agent_that_dies_just_now_is_waited_for_and_one_that_lives_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = StateFolder(str(tmp_path))
    monkeypatch.setattr(state_folder, "_PATIENCE_S", 0.05)
    with pytest.raises(InUse, match=f"has an agent already: process {os.getpid()}"):
        StateFolder(str(tmp_path))
    monkeypatch.setattr(state_folder, "_PATIENCE_S", 60.0)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _s: os.close(first._lock))
    monkeypatch.setattr(run_folder, "time", clock)
    StateFolder(str(tmp_path))


def test_a_lock_is_waited_for_longer_if_the_process_that_has_it_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = StateFolder(str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / "lock").write_text(f"{ended.pid}\n")
    monkeypatch.setattr(state_folder, "_PATIENCE_S", -1.0)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _s: os.close(first._lock))
    monkeypatch.setattr(run_folder, "time", clock)
    StateFolder(str(tmp_path))
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_folder_is_known_again_and_told_from_others(tmp_path: Path) -> None:
    identities = []
    for name in ("a", "b", "a"):
        state = StateFolder(str(tmp_path / name))
        identities.append(state.identity)
        os.close(state._lock)
    assert identities[0] == identities[2] != identities[1]
    assert all(identities)


def test_the_starts_of_agents_on_a_folder_are_counted(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        state = StateFolder(str(tmp_path))
        assert state.starts == expected
        os.close(state._lock)
    (tmp_path / "starts").write_text("nonsense")
    assert StateFolder(str(tmp_path)).starts == 1
