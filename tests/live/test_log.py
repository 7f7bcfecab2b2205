"""One job through the log of `hocket up`, from its submission to its end; and a log that cannot be written."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.live.controller import LiveController, awaited
from tests.whole_lines import json_lines

JOB = "followed"
Line = dict[str, Any]


def submit(controller: LiveController, *words: str) -> None:
    line = [sys.executable, "-m", "hocket", "submit", "-n", JOB, "--owner", "eve", "--wait", "--", *words]
    env = {**os.environ, "HOCKET_HOME": str(controller.home)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr


def say_nonsense(url: str) -> None:
    """What the HTTP server itself has to log something about."""
    there = urlsplit(url)
    with closing(socket.create_connection((there.hostname, there.port), timeout=60)) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")


def of_job(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.get("job") == JOB]


def in_order(lines: Sequence[Line], *wanted: Line) -> list[Line]:
    """The first line that has these fields, then the first after it that has the next ones, and so on."""
    found, rest = [], iter(lines)
    for fields in wanted:
        line = next((line for line in rest if fields.items() <= line.items()), None)
        assert line is not None, f"after {found[-1:]}, no line has {fields}"
        found.append(line)
    return found


@pytest.mark.slow
def test_a_job_can_be_followed_through_the_log_by_its_id(tmp_path: Path) -> None:
    options = ("--gpus", "1", "--name", "n0", "--log-json", "--log-level", "debug")
    with LiveController(tmp_path, *options) as controller:
        controller.begin()
        say_nonsense(controller.url)
        submit(controller, sys.executable, "-c", "print('epoch 1 acc=0.5')")
        agent_log = controller.home / "log"
        awaited(lambda: any("has ended" in line["message"] for line in json_lines(agent_log)), "the agent knows")
        controller.down()
        # stdout and stderr of both are there: nothing but lines of the log may be.
        service, agent = json_lines(controller.log), json_lines(agent_log)

    for line in [*service, *agent]:
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
        assert (f"'{JOB}'" in line["message"]) <= (line.get("job") == JOB), line
        assert (line["logger"] == "hocket.control") <= ("cycle" in line), line
    loggers = {"hocket.control", "hocket.executors", "hocket.service", "uvicorn.error"}
    assert {line["logger"] for line in service} == loggers
    assert {line["logger"] for line in agent} == {"hocket.agent", "hocket.sidecar"}

    submitted, decided, action, order, taken, started, epoch, ended = in_order(
        of_job(service),
        {"logger": "hocket.control", "level": "info", "event": "JobSubmitted", "owner": "eve"},
        {"logger": "hocket.control", "level": "info", "reason": "starts: least service first"},
        {"logger": "hocket.control", "level": "info", "action": "Start"},
        {"logger": "hocket.executors", "level": "info", "order": "run", "node": "n0", "run": 1, "n": 1},
        {"logger": "hocket.executors", "level": "debug", "order": "run", "node": "n0", "run": 1, "n": 1},
        {"logger": "hocket.control", "level": "info", "event": "JobStarted", "run": 1},
        {"logger": "hocket.control", "level": "debug", "event": "EpochEnded"},
        {"logger": "hocket.control", "level": "info", "event": "JobEnded"},
    )
    assert submitted["message"].endswith(f"JobSubmitted '{JOB}': of eve, sizes 1")
    assert submitted["cycle"] == decided["cycle"] == action["cycle"] == order["cycle"]
    assert order["cycle"] < started["cycle"] < epoch["cycle"] <= ended["cycle"]
    assert "queued for" in order["message"]
    assert "taken by" in taken["message"]
    assert "cycle" not in taken, "another thread answers agents"

    begun, runs, exited = in_order(
        of_job(agent),
        {"logger": "hocket.agent", "level": "info", "node": "n0", "run": 1},
        {"logger": "hocket.sidecar", "level": "info", "node": "n0", "run": 1, "event": "started"},
        {"logger": "hocket.sidecar", "level": "info", "node": "n0", "run": 1, "event": "exited", "code": 0},
    )
    over = of_job(agent)[-1]  # Its sidecar may have to be killed first.
    assert len(runs["pids"]) == 1
    assert "starts, by sidecar process" in begun["message"]
    assert "has ended" in over["message"]
    assert submitted["time"] < order["time"] < begun["time"] < started["time"] < ended["time"] < over["time"]
    assert runs["time"] < exited["time"]


@pytest.mark.slow
def test_a_log_that_cannot_be_written_stops_neither_controller_nor_agent(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--log-json", "--log-level", "debug") as controller:
        controller.home.mkdir()
        (controller.home / "log").symlink_to("/dev/full")
        controller.log = Path("/dev/full")
        controller.begin()
        submit(controller, "true")
        assert controller.jobs()[JOB]["state"] == "finished"
        controller.down()
        assert controller.code == 0
