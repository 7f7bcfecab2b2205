"""Reservations over the API: what is answered and shown, and what is refused in which words."""

import pytest
from tests.unit.service.conftest import busy

JOB = {"command": ["python", "train.py"], "cwd": "/"}
FOR_ANA = {"owners": ["ana"]}


def reserve(client, said, node="here"):
    return client.post(f"/v1/nodes/{node}/reserve", said)


def shown(client):
    return client.get("/v1/nodes").json()["nodes"][0]["reservations"]


def test_a_reservation_is_made_shown_and_removed(client):
    client.post("/v1/jobs", {"jobs": [{**JOB, "id": "a", "owner": "bo"}]})
    told = reserve(client, {"owners": ["ana", "cy", "ana"], "end_in_s": 3600, "by": "root"}).json()
    made = told["reservation"]
    assert (told["id"], told["jobs"]) == ("here", [{"id": "a", "owner": "bo"}])
    assert (made["name"], made["owners"], made["holds"], made["by"]) == ("ana-1", ["ana", "cy"], True, "root")
    assert made["until_s"] - made["from_s"] == pytest.approx(3600, abs=1e-3)
    later = reserve(client, {"owners": ["ana"], "begin_in_s": 7200}).json()["reservation"]
    assert (later["name"], later["holds"], later["until_s"]) == ("ana-2", False, None)
    assert shown(client) == [made, later]

    client.post("/v1/jobs", {"jobs": [{**JOB, "id": "b", "owner": "bo"}, {**JOB, "id": "c", "owner": "cy"}]})
    states = {row["id"]: row["state"] for row in client.get("/v1/jobs").json()["jobs"]}
    assert states == {"a": "starting", "b": "waiting", "c": "starting"}
    why = client.get("/v1/jobs/b/why").json()
    assert (why["waits_for"], why["short_of"]) == (
        "a node with GPUs: here is reserved for ana, cy as 'ana-1'",
        ["reservation"],
    )
    assert client.post("/v1/nodes/ana-1/unreserve").json() == {"removed": ["ana-1"]}
    assert shown(client) == [later]
    reserve(client, {"owners": ["bo"], "begin_in_s": 10, "end_in_s": 20, "name": "demo"})
    assert client.post("/v1/nodes/here/unreserve").json() == {"removed": ["ana-2", "demo"]}
    assert shown(client) == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "owners"),
        ({"owners": []}, "owners"),
        ({"owners": [""]}, "owners"),
        ({**FOR_ANA, "begin_in_s": -1}, "begin_in_s"),
        ({**FOR_ANA, "begin": 1}, "begin"),
        (b"{", "the body must be JSON"),
        ({**FOR_ANA, "begin_in_s": 9, "end_in_s": 9}, "must end after it begins, and this one would begin in 9 s"),
        ({**FOR_ANA, "name": "here"}, "a reservation must not have the name of a node, as 'here' is"),
        ({**FOR_ANA, "begin_in_s": 700, "name": "old"}, "there is a reservation 'old' already, of node 'here'"),
        ({**FOR_ANA, "begin_in_s": 10}, "node 'here' is reserved for cy as 'old' at that time"),
        ({**FOR_ANA, "end_in_s": 101}, "node 'here' is reserved for cy as 'old' at that time"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_words(client, said, words):
    assert reserve(client, {"owners": ["cy"], "begin_in_s": 100, "end_in_s": 600, "name": "old"}).status == 200
    answer = reserve(client, said)
    assert (answer.status, words in answer.json()["error"]) == (400, True), answer.text
    assert [r["name"] for r in shown(client)] == ["old"]


def test_names_that_are_not_there_are_told(client):
    answer = reserve(client, FOR_ANA, "heer")
    assert (answer.status, answer.json()["error"]) == (404, "there is no node 'heer'; did you mean 'here'?")
    answer = client.post("/v1/nodes/here/unreserve")
    assert (answer.status, answer.json()["error"]) == (404, "node 'here' is not reserved")
    answer = client.post("/v1/nodes/heer/unreserve")
    assert answer.json()["error"] == "there is no reservation and no node 'heer'; did you mean 'here'?"


def test_of_two_that_are_asked_for_at_once_one_is_made(client, engine):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as threads:
        with busy(engine, 2):
            asked = [threads.submit(reserve, client, {"owners": [owner]}) for owner in ("ana", "bo")]
        answers = [each.result() for each in asked]
    assert sorted(answer.status for answer in answers) == [200, 400]
    assert len(shown(client)) == 1
