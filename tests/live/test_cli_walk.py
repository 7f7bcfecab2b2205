"""From `hocket up` to `hocket down`, as a user walks through it: real processes, real training, the shipped example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.children import child
from tests.live.at_rest import orphans
from tests.live.processes import end_all
from tests.unit.cli.typed import hocket

ROOT = Path(__file__).parents[2]
TRAIN = (sys.executable, str(ROOT / "examples" / "train_numpy.py"))
PATIENCE_S = 300


class User:
    """A user at a terminal."""

    def __init__(self, home: Path) -> None:
        self.env = {**os.environ, "HOCKET_HOME": str(home), "API_KEY": "s3cret"}

    def run(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "hocket", *args]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=self.env)
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done

    def says(self, *args: str, code: int = 0) -> str:
        return self.run(*args, code=code).stdout

    def told(self, *args: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.says(*args, "--json"))
        return found

    def awaits(self, job: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What `show` says of a job as soon as that holds; asked in this process, since it is asked again and again."""
        until = time.monotonic() + PATIENCE_S
        while not condition(found := json.loads(hocket("show", job, "--json", **self.env).stdout)):
            assert time.monotonic() < until, (found, self.told("why", job))
            time.sleep(0.05)
        return found


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    home = tmp_path / "home"
    found = User(home)
    try:
        found.run("up", "--gpus", "2", "--detach")
        yield found
    finally:
        end_all(home)


@pytest.mark.slow
def test_a_user_walks_through_every_command(user: User) -> None:
    # A job, waited for.
    done = user.run("submit", "-n", "first", "--env", "API_KEY", "--wait", "--", *TRAIN, "--epochs", "3")
    assert done.stdout == "first\n"
    assert done.stderr.startswith("first finished")
    assert "done: final acc=" in user.says("logs", "first")
    assert user.says("logs", "first", "--tail", "1").startswith("done: ")
    shown = user.told("show", "first")
    assert (shown["state"], shown["epoch"]) == ("finished", 3)
    assert "API_KEY" in shown["job"]["env"]
    assert "s3cret" not in user.says("show", "first", "--json") + user.says("show", "first")
    assert user.told("why", "first")["past"][0]["what"] == "submitted"

    # What fails, and what is refused.
    assert user.says("submit", "-n", "bad", "--retries", "0", "--wait", "--", "false", code=1) == "bad\n"
    assert "8" in user.run("submit", "-n", "huge", "--gpus", "8", "--", "true", code=2).stderr
    assert "did you mean 'first'?" in user.run("show", "frist", code=2).stderr

    # One that is paused, resumed and stopped.
    assert user.says("submit", "-n", "long", "--", *TRAIN, "--epochs", "100000", "--pace", "0.05") == "long\n"
    user.awaits("long", lambda row: row["state"] == "running" and row["epoch"] >= 2)
    assert "a live job has it" in user.run("submit", "-n", "long", "--", "true", code=2).stderr
    assert "long" in user.says("top")
    user.run("pause", "long")
    paused = user.awaits("long", lambda row: row["state"] in ("held", "paused") and row["gpus"] == [])
    before = user.says("logs", "long")
    assert user.told("why", "long")["now"]
    user.run("resume", "lon*")
    user.awaits("long", lambda row: row["state"] == "running" and row["epoch"] > paused["epoch"])
    after = user.says("logs", "long")
    assert after.startswith(before), "the output of the first run comes first"
    assert after.count("epoch 1/") == 1, "the second run goes on where the first one stopped"
    follow = [sys.executable, "-m", "hocket", "logs", "-f", "--tail", "1", "long"]
    with child(follow, stdout=subprocess.PIPE, env=user.env) as following:
        assert following.stdout.readline().startswith(b"epoch ")
        user.run("stop", "long")
        following.communicate(timeout=300)
        assert following.returncode == 0
    assert user.awaits("long", lambda row: row["ended_s"] is not None)["state"] == "stopped"

    # Several from a file, one after the others, with a criterion.
    path = Path(user.env["HOCKET_HOME"]).parent / "sweep.toml"
    path.write_text(
        f"""
        [[job]]
        name = "sweep"
        command = {json.dumps([*TRAIN, "--epochs", "100000", "--pace", "0.02"])}
        until = "acc >= 80%"
        array = 2

        [[job]]
        name = "last"
        command = "true"
        gpus = 0
        after = "sweep-*"
        """
    )
    assert user.says("submit", str(path), "--wait") == "sweep-0\nsweep-1\nlast\n"
    states = {row["id"]: row["state"] for row in user.told("jobs", "--all")["jobs"]}
    assert states == {
        "first": "finished", "bad": "failed", "long": "stopped", "sweep-0": "attained", "sweep-1": "attained",
        "last": "finished",
    }  # fmt: skip
    assert user.told("jobs")["jobs"] == []

    user.run("down")
    assert "start one with 'hocket up'" in user.run("jobs", code=2).stderr
    assert orphans(Path(user.env["HOCKET_HOME"])) == []
