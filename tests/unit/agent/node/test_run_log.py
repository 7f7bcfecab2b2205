"""What is logged of a run: by the agent, and from the facts of its sidecar."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hocket.agent.node.run_log import log_fact, log_run
from hocket.agent.protocol import RunKey

KEY = RunKey("a", 3)


@pytest.mark.parametrize(
    ("fact", "level", "said"),
    [
        ({"event": "started", "pids": [7], "warm": True, "resumed": False}, "INFO", "started: warm, pids [7]"),
        ({"event": "exited", "code": 0, "signal": None, "asked": False}, "INFO", "exited: code 0"),
        ({"event": "exited", "code": None, "signal": "SIGKILL"}, "INFO", "exited: signal SIGKILL"),
        ({"event": "checkpoint-asked", "then": "go-on", "signal": "SIGUSR1"}, "INFO", None),
        ({"event": "prepared", "warm": True, "reason": None, "pids": []}, "INFO", "prepared: warm"),
        ({"event": "progress", "epoch": 2, "metrics": {}}, "DEBUG", "progress: epoch 2"),
        ({"event": "use", "cpu": 1.0}, "DEBUG", "use"),
        ({"event": "warning", "about": "no space"}, "WARNING", "warning: about no space"),
        ({"event": "hung", "silent_s": 3}, "WARNING", "hung"),
        ({"event": "cannot-start", "reason": "no such file"}, "WARNING", "cannot-start: reason no such file"),
    ],
    ids=lambda value: value["event"] if isinstance(value, dict) else None,
)
def test_a_fact_of_a_sidecar_is_logged_at_its_level_with_job_and_run(
    caplog: pytest.LogCaptureFixture, fact: dict[str, Any], level: str, said: str | None
) -> None:
    caplog.set_level(logging.DEBUG, "hocket.sidecar")
    log_fact(KEY, {"n": 1, "at": 0.0, **fact})
    (record,) = caplog.records
    told = vars(record)
    assert (record.name, record.levelname, told["job"], told["run"]) == ("hocket.sidecar", level, "a", 3)
    assert told["event"] == fact["event"]
    assert said is None or record.getMessage() == f"run 3 of job 'a': {said}"


def test_an_exit_code_of_zero_is_a_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hocket.sidecar")
    log_fact(KEY, {"n": 1, "at": 0.0, "event": "exited", "code": 0})
    assert vars(caplog.records[0])["code"] == 0


def test_what_the_agent_does_with_a_run_is_logged_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hocket.agent")
    log_run(logging.DEBUG, KEY, "is not heard")
    log_run(logging.INFO, KEY, "starts at 100%")
    log_run(logging.WARNING, KEY, "cannot start: %s", "no space", sidecar=5)
    heard = [(r.levelname, r.getMessage(), vars(r).get("sidecar")) for r in caplog.records]
    assert heard == [
        ("INFO", "run 3 of job 'a': starts at 100%", None),
        ("WARNING", "run 3 of job 'a': cannot start: no space", 5),
    ]
