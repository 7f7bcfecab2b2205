"""Secrets of jobs: encrypted while a job lives, told to the agent that runs it and to nothing else, gone afterwards."""

import stat
import time

import pytest
from tests.unit.service.conftest import TOKEN

from hocket.agent.protocol import Hello, Report, RunKey, StartRun
from hocket.executors.agents.executor import agents
from hocket.model.job import Job, Launch
from hocket.model.resources import Node
from hocket.policies import find
from hocket.service.app import make_app
from hocket.service.engine import Engine
from hocket.service.secret_store import KIND, SecretsLost, SecretStore

VALUE = "s3cr3t-of-ana"
JOB = {"command": ["python", "train.py"], "cwd": "/", "owner": "ana", "secrets": {"HF_TOKEN": VALUE}, "warm": False}
PATIENCE_S = 60.0


def submit(client, **job):
    answer = client.post("/v1/jobs", {"jobs": [JOB | job]})
    assert answer.status == 200, answer.text
    return answer.json()["jobs"]


class Agent:
    """The agent of node 'here', by hand."""

    def __init__(self, engine):
        self.engine, self.taken = engine, 0
        (self.session,) = engine.sessions._sessions

    def order(self):
        """The next order to start something."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for numbered in self.engine.sessions.orders(self.session, self.taken, 0.2):
                self.taken = numbered.n
                if isinstance(numbered.order, StartRun):
                    return numbered.order
        raise AssertionError("no order came")

    def report(self, run, *events):
        reports = [Report(run, n, time.time(), event, fields) for n, (event, fields) in enumerate(events, 1)]
        self.engine.executor.report(reports, "here").result(PATIENCE_S)


@pytest.fixture
def agent(engine):
    return Agent(engine)


def files_with(folder, value):
    return [path.name for path in folder.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]


def test_only_the_agent_that_runs_the_job_is_told_the_value(client, agent, engine, tmp_path, caplog):
    caplog.set_level("DEBUG")
    submit(client, id="a")
    order = agent.order()
    assert (order.run, order.secrets) == (RunKey("a", 1), {"HF_TOKEN": VALUE})
    assert VALUE not in str(order.spec) + str(order.env)
    for path in ("/v1/jobs", "/v1/jobs/a", "/v1/jobs/a/why", "/v1/status", "/openapi.json"):
        assert VALUE not in client.get(path).text, path
    assert client.get("/v1/jobs/a").json()["job"]["secrets"] == ["HF_TOKEN"]
    assert files_with(tmp_path, VALUE) == []
    assert VALUE not in caplog.text
    assert VALUE.encode() not in engine.journal.kept(KIND)["a"]
    assert stat.S_IMODE((tmp_path / "secrets.key").stat().st_mode) == 0o600


def test_a_job_that_is_tried_again_has_them_again_and_one_that_is_over_has_them_no_more(client, agent, engine):
    submit(client, id="a", retries=1, backoff_s=0.0)
    first = agent.order()
    agent.report(first.run, ("started", {"pids": [1]}), ("exited", {"code": 1}))
    second = agent.order()
    assert second.run.number > first.run.number
    assert second.secrets == {"HF_TOKEN": VALUE}
    assert engine.journal.kept(KIND).keys() == {"a"}
    agent.report(second.run, ("started", {"pids": [1]}), ("exited", {"code": 0}))
    client.await_state("a", "finished")
    assert engine.journal.kept(KIND) == {}


def test_one_that_is_stopped_before_it_runs_has_them_no_more(client, engine):
    submit(client, id="a", sizes=[2])
    submit(client, id="b", sizes=[2])
    client.post("/v1/jobs/b/stop")
    client.await_state("b", "stopped")
    assert engine.journal.kept(KIND).keys() == {"a"}


def test_each_job_of_an_array_has_them(client, engine):
    submit(client, id="sweep", array=3)
    assert engine.journal.kept(KIND).keys() == {"sweep-0", "sweep-1", "sweep-2"}


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        (VALUE, ["secrets", "an object"]),
        ({"A": 5}, ["secrets", "a text"]),
        ({"A": f"{VALUE}\0"}, ["secrets"]),
        ({"A=B": VALUE}, ["secrets"]),
        ({"RANK": VALUE}, ["secrets", "'RANK'", "set for each run"]),
        ({"HOCKET_HOME": VALUE}, ["'HOCKET_HOME'"]),
        ({"IN_ENV": VALUE}, ["'IN_ENV'", "env"]),
    ],
)
def test_what_is_wrong_with_them_is_said_without_their_value(client, engine, secrets, words):
    answer = client.post("/v1/jobs", {"jobs": [JOB | {"secrets": secrets, "env": {"IN_ENV": "1"}}]})
    assert answer.status == 400
    assert all(word in answer.json()["error"] for word in words), answer.text
    assert VALUE not in answer.text
    assert engine.journal.kept(KIND) == {}


def test_nothing_is_kept_for_a_job_that_is_refused(client, engine):
    assert "largest that fits" in submit(client, id="a", sizes=[64])[0]["refused"]
    submit(client, id="b")
    assert "unique" in submit(client, id="b", secrets={"HF_TOKEN": "another"})[0]["refused"]
    assert engine.journal.kept(KIND).keys() == {"b"}


def test_a_job_whose_key_is_lost_fails_in_words_and_others_go_on(client, agent, tmp_path):
    submit(client, id="first", sizes=[2])
    order = agent.order()
    submit(client, id="a", sizes=[2])
    submit(client, id="plain", secrets={}, sizes=[2])
    (tmp_path / "secrets.key").unlink()
    agent.report(order.run, ("started", {"pids": [1]}), ("exited", {"code": 0}))
    client.await_state("a", "failed")
    reason = client.get("/v1/jobs/a").json()["reason"]
    assert "its secrets cannot be had, so that it must be submitted again: the key of secrets" in reason
    assert "secrets.key' cannot be read: No such file" in reason
    assert agent.order().run.job == "plain"
    submit(client, id="b", sizes=[2])  # with a new key
    assert (tmp_path / "secrets.key").exists()


def test_a_job_whose_agent_connects_again_is_told_again(client, agent, engine):
    submit(client, id="a")
    assert agent.order().secrets
    agent.session, agent.taken = engine.sessions.open("here", "127.0.0.1"), 0
    hello = engine.executor.hello(Hello(Node("here", 2, cores=4.0), "127.0.0.1"))
    engine.executor.post(hello).result(PATIENCE_S)
    assert agent.order().secrets == {"HF_TOKEN": VALUE}


def test_what_a_killed_controller_left_is_removed_when_the_next_one_starts(tmp_path, secrets_key):
    def opened():
        engine = Engine(str(tmp_path / "journal.db"), agents(300.0), find("las").bound())
        return engine, make_app(engine, TOKEN, lambda _grace_s: None, secrets_key=secrets_key)

    engine, _ = opened()
    SecretStore(engine.journal, secrets_key).keep({"never-submitted": {"A": VALUE}})
    engine.close()
    engine, _ = opened()
    assert engine.journal.kept(KIND) == {}
    engine.close()


def test_what_is_kept_for_one_job_does_not_serve_another(engine, secrets_key, tmp_path):
    store = SecretStore(engine.journal, secrets_key)
    store.keep({"a": {"A": VALUE}})
    assert store.of(Job("a", launch=Launch(secrets=("A",)))) == {"A": VALUE}
    engine.journal.keep(KIND, {"b": engine.journal.kept(KIND)["a"]})
    with pytest.raises(SecretsLost, match="another key, or are damaged"):
        store.of(Job("b"))
    with pytest.raises(SecretsLost, match="they are not kept here"):
        store.of(Job("c"))
    for wrong, why in ((b"short", "damaged"), (b"c2hvcnQ=", "must have 32 bytes, and has 5")):
        (tmp_path / "secrets.key").write_bytes(wrong)
        with pytest.raises(SecretsLost, match=why):
            store.of(Job("a"))
