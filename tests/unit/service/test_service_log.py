"""What the service logs of requests, of its journal and of its policy, and with which fields."""

import logging

import pytest

from hocket.agent.log_setup import JsonLogLine
from hocket.control.journal import JournalError
from hocket.executors.agents.executor import agents
from hocket.model.event import JobSubmitted
from hocket.model.job import Job
from hocket.policies import find
from hocket.service.engine import Engine, Unavailable


class Lines(logging.Handler):
    """Every line as `--log-json` has it, made in the thread that logs."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        JsonLogLine({}).format(record)  # It must not raise.
        self.found.append((record.levelname, record.getMessage(), vars(record)))

    def of(self, text):
        """Level and fields of the one line that has this text."""
        (found,) = [(level, fields) for level, message, fields in self.found if text in message]
        return found


@pytest.fixture
def lines():
    logger, handler = logging.getLogger("hocket"), Lines()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_requests_are_logged_once_with_job_owner_and_who_asked(lines, client):
    jobs = [
        {"id": "a", "owner": "eve", "command": ["true"]},
        {"id": "b", "owner": "eve", "command": ["x"], "sizes": [9]},
    ]
    client.post("/v1/jobs", {"jobs": jobs})
    client.post("/v1/jobs", {"jobs": [{"comand": ["true"]}]})
    client.post("/v1/jobs/a/pause?by=ann")
    client.post("/v1/job-requests", {"request": "stop", "jobs": ["a"], "by": "ann"})
    client.put("/v1/owners/eve", {"weight": 2})
    for text, expected in {
        "JobSubmitted 'a': of eve, sizes 1": {"levelname": "INFO", "job": "a", "owner": "eve"},
        "JobRefused 'b': job 'b': sizes must ": {"levelname": "WARNING", "job": "b"},
        "JobAsked 'a': pause by ann": {"levelname": "INFO", "job": "a", "by": "ann"},
        "JobAsked 'a': stop by ann": {"levelname": "INFO", "job": "a", "by": "ann"},
        "OwnerSet 'eve': weight 2": {"levelname": "INFO", "owner": "eve"},
    }.items():
        _level, fields = lines.of(text)
        assert {name: fields[name] for name in expected} == expected
    assert lines.of("a submission is refused: jobs[0]: ")[0] == "INFO"
    assert lines.of("POST /v1/job-requests: 200")[0] == "DEBUG"


def test_an_agent_is_logged_as_it_connects_and_as_its_name_is_taken(lines, client):
    hello = {"node": {"id": "n1", "gpus": 1}, "address": "10.0.0.7", "state": "x"}
    assert client.post("/v1/agents/hello", hello).status == 200
    level, fields = lines.of("the agent of node 'n1' connects, at 10.0.0.7")
    assert (level, fields["name"], fields["node"]) == ("INFO", "hocket.executors", "n1")
    assert client.post("/v1/agents/hello", {**hello, "state": "y"}).status == 409
    level, fields = lines.of("an agent is refused: ")
    assert (level, fields["node"]) == ("WARNING", "n1")


def test_a_journal_that_fails_is_an_error_and_its_recovery_is_told(lines, engine):
    journal, real = engine.journal, engine.journal._commit

    def fail(_rows):
        journal._commit = real
        raise JournalError("the disk is full")

    journal._commit = fail
    lines.found.clear()
    with pytest.raises(Unavailable):
        engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, Job("a", command=("true",)))]).result(60)
    engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, Job("b", command=("true",)))]).result(60)
    assert lines.of("the disk is full; nothing is accepted until it can be written")[0] == "ERROR"
    level, fields = lines.of("restored")
    assert (level, fields["name"], fields["jobs"]) == ("INFO", "hocket.service", 0)
    assert fields["cycle"] == fields["folded"] == 1
    assert lines.of("all agents are to connect again")[0] == "INFO"
    assert [level for level, *_ in lines.found].count("ERROR") == 1


def test_another_policy_is_logged_when_it_takes_over(lines, tmp_path):
    path = str(tmp_path / "journal.db")
    Engine(path, agents(), find("fifo").bound()).close()
    Engine(path, agents(), find("las").bound()).close()
    level, fields = lines.of("decides from now on, not 'fifo'")
    assert (level, fields["policy"]) == ("INFO", "las")
