"""Two controllers on one journal in PostgreSQL: when the one that leads is killed, or stopped, no job notices."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, NoAnswer, awaited
from tests.whole_lines import json_lines

JOB = """
import json, os, sys, time
with open(sys.argv[1], "a", buffering=1) as ledger:
    while not os.path.exists(sys.argv[1] + ".end"):
        ledger.write(json.dumps({"attempt": os.environ["HOCKET_ATTEMPT"], "at": time.monotonic()}) + "\\n")
        time.sleep(0.02)
"""


class Pair:
    """Two controllers, of which one leads, and a job on an agent that knew the first one only."""

    def __init__(self, root: Path, store: str) -> None:
        options = ("--no-agent", "--policy", "fifo", "--store", store, "--standby", "--lease", "60", "--takeover", "3")
        self.first, self.second = LiveController(root / "1", *options), LiveController(root / "2", *options)
        self.second.home.mkdir(parents=True, mode=0o700)
        self.ledger = root / "ledger"
        (root / "job.py").write_text(JOB)
        self.job = {"id": "j", "command": [sys.executable, str(root / "job.py"), str(self.ledger)], "cwd": "/"}

    def begin(self) -> None:
        self.first.begin()
        for name in ("token", "secrets.key"):
            shutil.copy(self.first.home / name, self.second.home / name)
        self.second.start()
        awaited(lambda: "stands by" in self.second.log.read_text(), "the second stands by")

    def lines(self) -> list[dict[str, Any]]:
        return json_lines(self.ledger)


@contextmanager
def pair(root: Path, store: str) -> Iterator[Pair]:
    made = Pair(root, store)
    with made.first, made.second, LiveAgent(made.first, "n", "--gpus", "1") as agent:
        made.begin()
        agent.begin()
        (said,) = made.first.call("POST", "/v1/jobs", {"jobs": [made.job]})["jobs"]
        assert not said["refused"]
        awaited(lambda: bool(made.lines()), "the job runs")
        for folder in (made.first.home, made.second.home, agent.state):  # The agent learns it by a sign of life.
            awaited(lambda folder=folder: urls_in(folder / "controllers") == 2, f"both are known in {folder}")
        yield made


def made_token(controller: LiveController, owner: str) -> str:
    return str(controller.types("token", "create", owner, "--role", "user", "--owner", owner).stdout.strip())


def urls_in(path: Path) -> int:
    return path.read_text().count("http:") if path.exists() else 0


def leads(controller: LiveController) -> bool:
    try:
        return controller.answers() and bool(controller.call("GET", "/v1/nodes")["nodes"][0]["up"])
    except (NoAnswer, IndexError):
        return False


def longest_pause_s(lines: list[dict[str, Any]]) -> float:
    return max(b["at"] - a["at"] for a, b in pairwise(lines))


@pytest.mark.slow
def test_a_controller_that_stands_by_takes_over_and_the_job_does_not_notice(tmp_path, server):
    with pair(tmp_path, server.url) as both:
        ana, bob = (made_token(both.first, owner) for owner in ("ana", "bob"))
        both.first.types("token", "revoke", "bob")
        secret = {"id": "s", "command": ["sh", "-c", "test $KEY = s3cret"], "cwd": "/", "secrets": {"KEY": "s3cret"}}
        both.first.call("POST", "/v1/jobs", {"jobs": [secret]})  # It waits for the GPU.
        both.first.kill()
        killed_s = time.monotonic()
        awaited(lambda: leads(both.second), "the second leads, and has the agent")
        took_s = time.monotonic() - killed_s
        before = len(both.lines())
        awaited(lambda: len(both.lines()) > before + 10, "the job goes on")
        assert {line["attempt"] for line in both.lines()} == {"1"}
        assert both.second.jobs()["j"]["attempts"] == 1
        assert longest_pause_s(both.lines()) < took_s  # It was never frozen to wait for the second.
        assert "user of owner 'ana'" in both.second.types("token", "whoami", HOCKET_TOKEN=ana).stdout
        both.second.types("token", "whoami", HOCKET_TOKEN=bob, code=2)  # It was revoked.
        # Users of the first home find the second, and the first stands by when it is started again.
        assert "j" in both.first.types("jobs").stdout
        both.first.start()
        awaited(lambda: "hocket: stands by" in both.first.log.read_text(), "the first stands by")
        assert both.first.pid is not None
        # Now the second is stopped, not killed: it holds its session, and must lose the journal all the same.
        os.kill(both.second.pid, signal.SIGSTOP)
        awaited(lambda: leads(both.first), "the first leads again")
        os.kill(both.second.pid, signal.SIGCONT)
        awaited(lambda: both.second.log.read_text().count("hocket: stands by") >= 2, "the second stands by again")
        assert "was taken over by" in both.second.log.read_text()
        both.ledger.with_name("ledger.end").touch()
        awaited(lambda: both.first.jobs()["j"]["state"] == "finished", "the job ends")
        assert {line["attempt"] for line in both.lines()} == {"1"}
        awaited(lambda: both.first.jobs()["s"]["state"] == "finished", "a job with a secret ends")
        both.first.down(grace_s=0.0)


@pytest.mark.slow
def test_a_controller_with_another_token_may_not_stand_by(tmp_path, server):
    database = f"{server.url}&options=-csearch_path%3Dother"
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE SCHEMA other")
    options = ("--no-agent", "--store", database, "--standby")
    first, second = LiveController(tmp_path / "1", *options), LiveController(tmp_path / "2", *options)
    with first, second:
        first.begin()
        second.start()
        awaited(lambda: second.code is not None, "the second ends")
        assert second.code == 2
        assert "another token" in second.log.read_text()
        first.down(grace_s=0.0)
