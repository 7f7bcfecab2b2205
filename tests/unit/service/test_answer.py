"""`GET /v1/jobs/{id}/answer`: of queries only, and asked of their agents."""

import threading

from hocket.agent.protocol import ReadAnswer

QUERY = {"kind": "query", "command": ["hocket", "query", "SELECT 1", "--data", "d"], "gpus": 0, "cores": 1.0}


def submit(client, **fields):
    (said,) = client.post("/v1/jobs", {"jobs": [{"owner": "ana", **fields}]}).json()["jobs"]
    assert not said.get("refused"), said


def test_a_job_that_is_no_query_has_no_answer(client):
    submit(client, id="train", command=["true"])
    answer = client.get("/v1/jobs/train/answer")
    assert answer.status == 409
    assert "job 'train' must be a query, and is of kind 'training'" in answer.text
    assert client.get("/v1/jobs/nobody/answer").status == 404


def test_the_answer_is_that_of_the_agent(client, engine):
    submit(client, id="q", **QUERY)
    session = engine.sessions.open("n9", "127.0.0.1", "s")
    bodies = iter([(b"", "0"), (b'{"fraction": 0.5}', "2")])

    def agent():
        after, asked = 0, 0
        while asked < 2:
            for numbered in engine.sessions.orders(session, after, 1.0):
                after = numbered.n
                if isinstance(numbered.order, ReadAnswer):
                    asked += 1
                    body, run = next(bodies)
                    path = f"/v1/agents/{session}/logs/{numbered.order.request}"
                    client.post(path, body, **{"X-Attempt": run})

    said = threading.Thread(target=agent, daemon=True)
    said.start()
    nothing = client.get("/v1/jobs/q/answer")
    assert nothing.status == 404
    assert "job 'q' has no answer yet" in nothing.text
    found = client.get("/v1/jobs/q/answer")
    assert (found.status, found.json()) == (200, {"fraction": 0.5})
    said.join(60)
