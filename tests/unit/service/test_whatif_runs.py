"""`/v1/whatif`: one run of a token at a time, in a process of its own, within limits, which can be cancelled."""

import sys
import time

import pytest

from hocket.service.app import make_app
from hocket.service.whatif_runs import WhatIfRuns

# Says how far it is, and goes on when it is told to by a file.
SLOW = """
import json, os, sys, time
asked = json.loads(sys.stdin.readline())
print(json.dumps({"done": 1, "of": 3, "what": "runs las again"}), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print(json.dumps({"result": {"asked": asked}}), flush=True)
"""


@pytest.fixture
def go_on(tmp_path):
    return tmp_path / "go-on"


@pytest.fixture
def runs(tmp_path, go_on):
    (tmp_path / "slow.py").write_text(SLOW)
    found = WhatIfRuns("the-store", "the-archive", [sys.executable, str(tmp_path / "slow.py"), str(go_on)])
    yield found
    found.close()


@pytest.fixture
def app(engine, secrets_key, runs):
    return make_app(engine, "a-token-of-the-tests", lambda _s: None, secrets_key=secrets_key, whatif=runs)


def awaited(client, test):
    until = time.monotonic() + 60
    while not test(found := client.get("/v1/whatif").json()):
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


def test_a_run_tells_how_far_it_is_and_its_result_stays(client, go_on):
    assert client.get("/v1/whatif").json() == {"state": "none"}
    began = client.post("/v1/whatif", {"policy": "fair", "params": {}, "days": 7})
    assert began.json()["state"] == "running"
    found = awaited(client, lambda run: run["done"] == 1)
    assert (found["of"], found["what"]) == (3, "runs las again")
    other = client.post("/v1/whatif", {"policy": "fifo"})
    assert other.status == 409
    assert "a run under fair is under way" in other.json()["error"]
    go_on.touch()
    done = awaited(client, lambda run: run["state"] == "done")
    asked = done["result"]["asked"]
    assert (asked["store"], asked["policy"]) == ("the-store", "fair")
    assert abs(time.time() - 7 * 86_400 - asked["since_s"]) < 3600
    assert client.post("/v1/whatif", {"policy": "fifo"}).json()["state"] == "running"


def test_a_run_is_cancelled_by_its_own_user_or_an_admin(client, with_token, runs):
    ana, bob = with_token("user", "ana", owner="ana"), with_token("user", "bob", owner="bob")
    assert ana.post("/v1/whatif", {"policy": "fair"}).status == 200
    assert bob.call("DELETE", "/v1/whatif").status == 403
    process = runs._processes["ana"]
    assert process.poll() is None
    assert ana.call("DELETE", "/v1/whatif").status == 200
    assert client.get("/v1/whatif").json()["state"] == "cancelled"
    process.wait(60)


def test_each_token_has_its_run_and_all_together_few(with_token, go_on):
    ana, bob, cleo = (with_token("user", name, owner=name) for name in ("ana", "bob", "cleo"))
    assert ana.post("/v1/whatif", {"policy": "fair"}).status == 200
    assert "cancel it first" in ana.post("/v1/whatif", {"policy": "fifo"}).json()["error"]
    assert bob.post("/v1/whatif", {"policy": "fifo"}).status == 200
    refused = cleo.post("/v1/whatif", {"policy": "las"})
    assert refused.status == 409
    assert "of tokens 'ana' and 'bob'" in refused.json()["error"]
    assert [each.get("/v1/whatif").json()["by"] for each in (ana, bob, cleo)] == ["ana", "bob", "bob"]
    assert cleo.call("DELETE", "/v1/whatif").status == 403
    assert bob.call("DELETE", "/v1/whatif").json()["state"] == "cancelled"
    assert ana.get("/v1/whatif").json()["state"] == "running"
    assert cleo.post("/v1/whatif", {"policy": "las"}).status == 200
    go_on.touch()
    assert awaited(ana, lambda run: run["state"] == "done")["policy"] == "fair"


def test_a_run_that_takes_too_long_is_ended(client, runs):
    runs._limit_s = 0.2
    assert client.post("/v1/whatif", {"policy": "fair"}).status == 200
    process = runs._processes["home"]
    found = awaited(client, lambda run: run["state"] != "running")
    assert (found["state"], found["error"]) == (
        "failed", "it took longer than 0.2 s: choose fewer days, or another policy",
    )  # fmt: skip
    process.wait(60)


def test_a_run_whose_result_is_too_long_is_ended(client, monkeypatch):
    monkeypatch.setattr("hocket.service.whatif_runs._LINE_LIMIT", 10)
    assert client.post("/v1/whatif", {"policy": "fair"}).status == 200
    assert "its result is longer" in awaited(client, lambda run: run["state"] != "running")["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"policy": "nope"}, 400),
        ({"policy": "las", "params": {"levels_gpu_s": 3}}, 400),
        ({"policy": "las", "days": 0}, 422),
        ({"policy": "las", "colour": 1}, 422),
        ({}, 422),
    ],
)
def test_what_cannot_be_run_is_refused_before_a_process_starts(client, body, status):
    assert client.post("/v1/whatif", body).status == status
    assert client.get("/v1/whatif").json() == {"state": "none"}


def test_a_process_that_breaks_is_told(client, runs):
    runs._command = [sys.executable, "-c", "raise SystemExit(7)"]
    assert client.post("/v1/whatif", {"policy": "fair"}).status == 200
    found = awaited(client, lambda run: run["state"] != "running")
    assert (found["state"], found["error"]) == ("failed", "its process ended with code 7")


def test_the_policies_are_listed_with_their_parameters(client):
    found = {policy["name"]: policy for policy in client.get("/v1/policies").json()["policies"]}
    assert {"las", "fair", "dorm"} <= set(found)
    assert found["las"]["summary"]
    assert any(each["name"] == "levels_gpu_s" for each in found["las"]["parameters"])
