"""What agents say is checked at the door: one that says nonsense disturbs no other, and no job."""

import msgspec
import pytest

from hocket.agent.protocol import Hello
from hocket.model.resources import Node

JOB = {"id": "a", "command": ["true"], "cwd": "/"}
HELLO = msgspec.to_builtins(Hello(Node("n1", 1), "127.0.0.1", state="a state"))
LARGE = 2**70  # fits no journal
RUNS = [{"job": "a", "number": LARGE}]


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("progress", {"epoch": LARGE, "metrics": {}}),
        ("progress", {"step": LARGE, "metrics": {}}),
        ("progress", {"epoch": "x"}),
        ("progress", {"epoch": 1, "metrics": 5}),
        ("exited", {"code": LARGE}),
        ("lost", {"reason": "x" * 100_000}),
        ("thawed", {"stood_s": "x"}),
        ("use", {"gpus": [{"mem_mib": LARGE}]}),
    ],
)
def test_a_report_that_makes_no_sense_is_given_back_and_changes_nothing(client, engine, event, fields, caplog):
    client.post("/v1/jobs", {"jobs": [JOB]})
    (session,) = engine.sessions._sessions
    reports = [
        {"run": {"job": "a", "number": 1}, "n": n, "at_s": 1.0, "event": event, "fields": fields}
        for n, (event, fields) in enumerate([("started", {"pids": [1]}), (event, fields)], 1)
    ]
    assert client.post(f"/v1/agents/{session}/reports", reports[:1]).status == 200
    assert client.post(f"/v1/agents/{session}/reports", reports[1:]).status == 400
    assert client.get("/v1/jobs/a").json()["state"] == "running"
    assert client.post(f"/v1/agents/{session}/alive").status == 200, "no agent has to connect again"
    assert "nothing is accepted" not in caplog.text


@pytest.mark.parametrize("more", [{"seen": {"a": LARGE}}, {"seen": {"a": -1}}, {"runs": RUNS}])
def test_a_hello_with_numbers_that_cannot_be_is_refused(client, more, caplog):
    client.post("/v1/jobs", {"jobs": [JOB]})
    assert client.post("/v1/agents/hello", HELLO | more).status == 422
    assert "nothing is accepted" not in caplog.text
