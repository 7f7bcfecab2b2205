"""The API: what it accepts, what it refuses and in which words, and what it never shows."""

import asyncio
import gc
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

import msgspec
import pytest
from tests.unit.service.conftest import TOKEN, busy

from hocket.control.journal import JournalError
from hocket.control.journal.no_others import NoOthers
from hocket.model.event import JobSubmitted, OwnerSet
from hocket.model.job import Owner
from hocket.policies import find

JOB = {"command": ["python", "train.py"], "cwd": "/"}


def submit(client, *jobs):
    answer = client.post("/v1/jobs", {"jobs": list(jobs)})
    assert answer.status == 200, answer.text
    return answer.json()["jobs"]


def test_nothing_is_said_without_the_token(app, stranger):
    assert stranger.get("/v1/health").status == 200
    for route in app.openapi()["paths"]:
        path = route.replace("{job_id}", "x").replace("{owner_id}", "x")
        for method in ("get", "post", "put"):
            if path != "/v1/health":
                assert getattr(stranger, method)(path).status == 401, path
    for wrong in ("", "Bearer", "Bearer x", "Basic abc", "Bearer ü"):
        assert stranger.get("/v1/status", Authorization=wrong.encode()).status == 401
    assert stranger.get("/openapi.json").status == 401
    assert stranger.post("/v1/agents/hello", b"{}").status == 401


def test_jobs_are_submitted_and_listed(client):
    first, second = submit(client, {**JOB, "id": "a", "owner": "ana"}, {**JOB, "sizes": [1, 2]})
    assert first == {"id": "a", "refused": ""}
    assert second["id"] == "train-2"
    rows = {row["id"]: row for row in client.get("/v1/jobs").json()["jobs"]}
    assert rows["a"]["state"] == "starting"
    assert rows["a"]["gpus"] == ["here:0"]
    assert [r["id"] for r in client.get("/v1/jobs?owner=ana").json()["jobs"]] == ["a"]


def test_the_line_of_a_waiting_job_says_what_is_short(client):
    wide = {**JOB, "sizes": [2], "owner": "ana"}
    submit(client, {**wide, "id": "a"}, {**wide, "id": "b"}, {**JOB, "id": "c", "sizes": [1]})
    rows = {row["id"]: row["reason"] for row in client.get("/v1/jobs").json()["jobs"]}
    assert (rows["b"], rows["c"]) == ("waits for 2 GPUs: none is free", "waits for 1 GPU: none is free")
    assert client.get("/v1/jobs/b/why").json()["now"].startswith("waits: ")  # what the policy says
    client.put("/v1/owners/ana", {"max_gpus": 1})
    rows = {row["id"]: row["reason"] for row in client.get("/v1/jobs").json()["jobs"]}
    assert rows["b"].startswith("waits: owner 'ana' has a quota of 1 GPUs")


def test_an_array_becomes_so_many_jobs(client):
    said = submit(client, {**JOB, "id": "sweep", "array": 3})
    assert [job["id"] for job in said] == ["sweep-0", "sweep-1", "sweep-2"]


def test_a_call_of_many_jobs_takes_several_cycles_and_each_array_has_one_name(client, engine):
    """Others would wait for all of its jobs, if one cycle took them in."""
    before = len(engine.journal)
    said = submit(client, {**JOB, "array": 1100}, {**JOB, "id": "sweep", "array": 3})
    name = said[0]["id"].removesuffix("-0")
    assert [job["id"] for job in said] == [f"{name}-{n}" for n in range(1100)] + [f"sweep-{n}" for n in range(3)]
    assert not any(job["refused"] for job in said)
    submitted = [sum(isinstance(e, JobSubmitted) for e in c.events) for c in engine.journal.after(before)]
    assert [count for count in submitted if count] == [250, 250, 250, 250, 103]


def test_a_call_of_five_hundred_jobs_is_one_cycle(client, engine):
    """In the journal whole or not at all."""
    before = len(engine.journal)
    submit(client, {**JOB, "id": "sweep", "array": 499}, JOB)
    submitted = [sum(isinstance(e, JobSubmitted) for e in c.events) for c in engine.journal.after(before)]
    assert [count for count in submitted if count] == [500]


def test_names_of_ended_jobs_are_looked_up_for_all_jobs_of_a_call_at_once(client, engine, monkeypatch):
    alone = []
    monkeypatch.setattr(engine.catalogue, "known", alone.append)
    said = submit(client, *({**JOB, "id": f"j{n}"} for n in range(20)), {**JOB, "id": "after", "after": ["j3"]})
    assert (alone, {job["refused"] for job in said}) == ([], {""})


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"comand": ["x"]}, ["jobs[0]", "'comand'", "did you mean 'command'"]),
        ({"command": []}, ["command", "a list of at least 1 entry"]),
        ({"command": "rm -rf /"}, ["command", "a list"]),
        ({**JOB, "until": "acc >="}, ["until"]),
        ({**JOB, "stop_signal": "SIGKILL"}, ["stop_signal", "SIGKILL"]),
        ({**JOB, "stop_signal": "SIGNONE"}, ["stop_signal", "SIGNONE"]),
        ({**JOB, "env": {"A=B": "c"}}, ["env"]),
        ({**JOB, "env": {"A": "b\0c"}}, ["env"]),
        ({**JOB, "cwd": "relative"}, ["cwd"]),
        ({**JOB, "sizes": [0]}, ["sizes"]),
        ({**JOB, "array": 0}, ["array"]),
        ({**JOB, "progress": {"kind": "nonesuch"}}, ["nonesuch"]),
        ({**JOB, "weight": 0}, ["weight"]),
        ({**JOB, "weight": 5e-324}, ["weight", "from 1e-09 up", "5e-324"]),
        ({**JOB, "cores": 1e-320}, ["cores", "0 or a number from 1e-09 up"]),
        ({**JOB, "mem_mib": 1e-320}, ["mem_mib", "0 or a number from 1e-09 up"]),
    ],
)
def test_a_bad_job_is_refused_with_field_rule_and_value(client, job, words):
    answer = client.post("/v1/jobs", {"jobs": [job]})
    assert answer.status == 400
    assert all(word in answer.json()["error"] for word in words), answer.text
    assert client.get("/v1/jobs?all=true").json()["jobs"] == []


def test_what_the_cluster_can_never_hold_is_refused_and_the_others_go_on(client):
    large, small = submit(client, {**JOB, "id": "large", "sizes": [64]}, {**JOB, "id": "small"})
    assert "largest that fits is 2" in large["refused"]
    assert small["refused"] == ""


def test_names_are_used_once(client):
    submit(client, {**JOB, "id": "a"})
    assert "unique" in submit(client, {**JOB, "id": "a"})[0]["refused"]
    first, second = submit(client, {**JOB, "id": "b"}, {**JOB, "id": "b"})
    assert first["refused"] == ""
    assert "unique" in second["refused"]
    assert client.get("/v1/jobs/b").status == 200


def test_of_two_clients_that_submit_one_name_at_once_one_is_accepted_and_told_so(client, engine):
    with ThreadPoolExecutor(2) as pool:
        with busy(engine, waiting=2):
            calls = [pool.submit(submit, client, {**JOB, "id": "z"}) for _ in range(2)]
        refused = sorted(call.result(120)[0]["refused"] for call in calls)
    assert refused[0] == ""
    assert "unique" in refused[1]
    assert client.get("/v1/jobs/z").status == 200


def test_names_that_are_made_up_at_the_same_time_differ(client, engine):
    with ThreadPoolExecutor(4) as pool:
        with busy(engine, waiting=4):
            calls = [pool.submit(submit, client, {**JOB, **more}) for more in [{}, {}, {"array": 2}, {"array": 2}]]
        told = [job for call in calls for job in call.result(120)]
    assert [job["refused"] for job in told] == [""] * 6
    assert len({job["id"] for job in told}) == 6


def test_a_name_that_the_journal_could_not_take_may_be_used_again(client, engine, monkeypatch):
    def full(_cycle):
        raise JournalError("the disk is full")

    monkeypatch.setattr(engine._last, "append", full)  # It goes on with another one.
    assert client.post("/v1/jobs", {"jobs": [{**JOB, "id": "a"}]}).status == 503
    assert submit(client, {**JOB, "id": "a"}) == [{"id": "a", "refused": ""}]


def test_a_job_after_one_that_is_refused_is_refused(client):
    lead, follow = submit(client, {**JOB, "id": "lead", "sizes": [64]}, {**JOB, "id": "follow", "after": ["lead"]})
    assert "largest that fits is 2" in lead["refused"]
    assert "there is no 'lead'" in follow["refused"]
    assert client.get("/v1/jobs/follow").status == 404


def test_a_name_that_was_refused_may_be_used_in_the_same_call(client):
    large, small = submit(client, {**JOB, "id": "a", "sizes": [64]}, {**JOB, "id": "a"})
    assert "largest that fits is 2" in large["refused"]
    assert small["refused"] == ""


def test_a_client_that_times_out_is_told_that_its_request_may_still_be_accepted(client, engine, monkeypatch):
    with monkeypatch.context() as hasty, busy(engine, waiting=1):
        hasty.setattr("hocket.service.api._PATIENCE_S", 0.05)
        answer = client.post("/v1/jobs", {"jobs": [{**JOB, "id": "a"}]})
        assert answer.status == 503
        assert "may still be accepted" in answer.json()["error"]
    assert "unique" in submit(client, {**JOB, "id": "a"})[0]["refused"]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "x\n", "\0", "y" * 201])
def test_names_that_could_go_elsewhere_are_refused(client, name):
    answer = client.post("/v1/jobs", {"jobs": [{**JOB, "id": name}]})
    refused = answer.status == 400 or answer.json()["jobs"][0]["refused"]
    assert refused


def test_secrets_are_never_shown(client):
    submit(client, {**JOB, "id": "a", "env": {"API_KEY": "s3cret"}})
    for path in ("/v1/jobs", "/v1/jobs/a", "/v1/jobs/a/why", "/v1/status", "/v1/nodes"):
        assert "s3cret" not in client.get(path).text
    assert client.get("/v1/jobs/a").json()["job"]["env"] == ["API_KEY"]


def test_a_job_follows_another_that_must_exist(client):
    (said,) = submit(client, {**JOB, "id": "b", "after": ["a"]})
    assert "there is no 'a'" in said["refused"]
    submit(client, {**JOB, "id": "a"}, {**JOB, "id": "c", "after": ["a"]})
    assert client.get("/v1/jobs/c").json()["state"] == "held"
    assert "'a'" in client.get("/v1/jobs/c/why").json()["waits_for"]


def test_job_requests(client):
    submit(client, {**JOB, "id": "a", "sizes": [2]}, {**JOB, "id": "b"})
    assert client.post("/v1/jobs/b/pause").json()["state"] == "held"
    assert client.post("/v1/jobs/b/resume").json()["state"] == "waiting"
    assert client.post("/v1/jobs/b/stop").status == 200
    client.await_state("b", "stopped")
    assert client.post("/v1/jobs/b/stop").status == 409
    assert client.post("/v1/jobs/nonesuch/stop").status == 404


def send(client, **said):
    answer = client.post("/v1/job-requests", said)
    assert answer.status == 200, answer.text
    return answer.json()["jobs"]


def test_a_request_for_many_is_one_cycle(client, engine):
    submit(client, {**JOB, "id": "first", "sizes": [2]}, {**JOB, "id": "sweep", "array": 20, "owner": "ana"})
    before = len(engine.journal)
    told = send(client, request="pause", jobs=["sweep-1*", "sweep-2"], by="bo")
    assert len(engine.journal) == before + 1
    assert {job["id"] for job in told} == {"sweep-1", *(f"sweep-1{n}" for n in range(10)), "sweep-2"}
    assert {job["state"] for job in told} == {"held"}
    assert len(send(client, request="pause", all=True, owner="ana")) == 20
    assert client.get("/v1/jobs/first").json()["state"] == "starting"
    assert len(send(client, request="resume", all=True)) == 21
    assert "by bo" in [line["reason"] for line in client.get("/v1/jobs/sweep-2/why").json()["past"]]


def test_a_request_names_the_jobs_it_cannot_be_for(client):
    submit(client, {**JOB, "id": "first", "sizes": [2]}, {**JOB, "id": "train"}, {**JOB, "id": "gone", "owner": "bo"})
    send(client, request="stop", jobs=["gone"])
    client.await_state("gone", "stopped")
    for said, status, words in (
        ({"request": "stop", "jobs": ["first", "trian"]}, 404, "there is no job 'trian'; did you mean 'train'?"),
        ({"request": "stop", "jobs": ["first", "x-*"]}, 404, "no live job matches 'x-*'"),
        ({"request": "stop"}, 400, "one of the two"),
        ({"request": "stop", "all": True, "jobs": ["first"]}, 400, "one of the two"),
        ({"request": "end", "all": True}, 400, "'end'"),
        ({"request": "stop", "al": True}, 400, "`al`"),
    ):
        answer = client.post("/v1/job-requests", said)
        assert (answer.status, words in answer.json()["error"]) == (status, True), answer.text
    assert client.get("/v1/jobs/first").json()["state"] == "starting"
    told = send(client, request="pause", jobs=["gone", "train"])
    assert told == [{"id": "train", "state": "held"}, {"id": "gone", "refused": "job 'gone' is over: stopped"}]
    (told,) = send(client, request="pause", jobs=["gone"], owner="ana")
    assert told["refused"] == "job 'gone' is bo's, not ana's"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/jobs?limit=x", "limit must be an integer, not 'x'"),
        ("/v1/jobs?all=maybe", "all must be true or false, not 'maybe'"),
        ("/v1/jobs/a/log?offset=1.5", "offset must be an integer, not '1.5'"),
        (
            "/v1/jobs?limit=9223372036854775808",
            "limit must be an integer <= 2147483647, not '9223372036854775808'",
        ),
        ("/v1/jobs?limit=-1", "limit must be an integer >= 0, not '-1'"),
        ("/v1/jobs/a/log?attempt=9999999999", "attempt must be an integer <= 2147483647, not '9999999999'"),
        (f"/v1/jobs/a/log?offset=-{2**60}", f"offset must be an integer >= -{2**53}, not '-{2**60}'"),
    ],
)
def test_a_question_that_is_wrong_is_answered_in_one_sentence(client, path, words):
    said = client.get(path)
    assert (said.status, said.json()) == (422, {"error": words})


@pytest.mark.parametrize("name", ["limit", "offset", "attempt"])
def test_a_number_of_thousands_of_digits_is_refused(client, name):
    assert client.get(f"/v1/jobs/a/log?{name}={'9' * 4300}").status == 422


def test_why_says_what_it_waits_for(client):
    submit(client, {**JOB, "id": "a", "sizes": [2]}, {**JOB, "id": "b"})
    why = client.get("/v1/jobs/b/why").json()
    assert why["waits_for"] == "1 GPU: none is free"
    assert why["short_of"] == ["gpus"]
    assert why["past"][0]["what"] == "submitted"
    assert client.get("/v1/jobs/b").json()["waits_for"] == why["waits_for"]
    assert client.get("/v1/jobs/a").json()["waits_for"] == ""


def test_a_job_is_shown_with_all_that_was_submitted(client):
    said = {
        "max_nodes": 1, "urgency": 7, "target": "acc >= 90%", "stop": "required", "may_lower": "required",
        "model": "resnet", "log_mib": 3.0, "weight": 2.0, "deadline_s": 60.0,
    }  # fmt: skip
    submit(client, {**JOB, "id": "a", **said})
    shown = client.get("/v1/jobs/a").json()["job"]
    assert {name: shown.get(name) for name in said} == said


def test_options_without_effect_are_told_at_submission_and_shown_under_the_present_policy(client, engine):
    with_both = {**JOB, "id": "a", "urgency": 7, "deadline_s": 60.0}
    told = client.post("/v1/jobs", {"jobs": [with_both, {**with_both, "id": "b"}, {**JOB, "id": "c"}]}).json()
    ignored = [
        "--urgency has no effect under policy 'las'; policies that use it: mlf_h, mlf_rl",
        "--deadline has no effect under policy 'las'; policies that use it: edf, hypersched, mlf_h, mlf_rl",
    ]
    assert told["warnings"] == ignored
    assert client.get("/v1/jobs/a").json()["warnings"] == ignored
    assert client.get("/v1/jobs/c").json()["warnings"] == []
    engine.policy = find("mlf_h").bound()  # as after `hocket up --policy mlf_h`
    assert client.get("/v1/jobs/a").json()["warnings"] == []
    assert client.post("/v1/jobs", {"jobs": [{**with_both, "id": "d"}]}).json()["warnings"] == []


def test_why_says_what_a_held_job_waits_for(client):
    submit(client, {**JOB, "id": "a b"}, {**JOB, "id": "next", "after": ["a b"]})
    client.post("/v1/jobs/next/pause")
    assert client.get("/v1/jobs/next/why").json()["waits_for"] == "its user to resume it: hocket resume next"
    client.post("/v1/jobs/next/resume")
    assert client.get("/v1/jobs/next/why").json()["waits_for"] == "it starts after 'a b'"


def test_why_and_the_rows_say_that_a_quota_has_no_room(client, engine):
    engine.executor.post(lambda _state, now_s: [OwnerSet(now_s, Owner("ana", max_gpus=1))]).result(60)
    mine = {**JOB, "owner": "ana"}
    told = submit(client, {**mine, "id": "a"}, {**mine, "id": "b"}, {**mine, "id": "c", "sizes": [2]})
    words = "sizes must fit its owner's quota; its smallest needs more than owner 'ana' may have, 1 GPUs"
    assert [one["refused"] for one in told] == ["", "", f"job 'c': {words}"]
    why = client.get("/v1/jobs/b/why").json()
    assert why["now"] == "waits: owner 'ana' has a quota of 1 GPUs, and others of its jobs use it"
    assert why["waits_for"] == "room in the quota of owner 'ana', 1 GPU: its jobs use 1, this one needs 1"
    assert why["short_of"] == ["quota", "gpus"]
    assert client.get("/v1/jobs/b").json()["reason"] == why["now"]
    assert {row["id"]: row["reason"] for row in client.get("/v1/jobs").json()["jobs"]}["b"] == why["now"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jobs": {}}', b'{"jobs": []}', b"\xff", b"[" * 10_000])
def test_nonsense_is_refused(client, body):
    assert client.post("/v1/jobs", body).status == 400


def test_a_body_that_is_too_large_is_refused(client):
    assert client.post("/v1/jobs", b"x" * (17 << 20)).status == 413


def test_an_unknown_session_must_say_hello(client):
    assert client.get("/v1/agents/nonesuch/orders").status == 410
    assert client.post("/v1/agents/nonesuch/reports", b"[]").status == 410


def test_an_epoch_that_diverged_is_shown_as_null(client, engine):
    submit(client, {**JOB, "id": "a"})
    record = engine.catalogue.records["a"]
    record.metrics = {"loss": float("nan")}
    assert client.get("/v1/jobs/a").json()["metrics"] == {"loss": None}


def test_the_description_has_every_field_of_a_job(app):
    schema = app.openapi()["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    item = schema["properties"]["jobs"]["items"]
    assert {"command", "until", "after", "env", "progress"} <= set(item["properties"])
    assert msgspec.json.encode(app.openapi())


def test_changes_are_told_as_they_come(client, port):
    listener = HTTPConnection("127.0.0.1", port, timeout=120)
    listener.request("GET", "/v1/events", headers=client.headers)
    answer = listener.getresponse()
    assert answer.getheader("content-type").startswith("text/event-stream")
    submit(client, {**JOB, "id": "a"})
    assert answer.readline() == b"event: job\n"
    told = json.loads(answer.readline().removeprefix(b"data: "))
    assert (told["id"], told["state"]) == ("a", "starting")
    listener.close()


@contextmanager
def asking(port, count, path):
    """A number of clients that wait for an answer."""
    said = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120)))
            sockets[-1].sendall(said)
        yield sockets


def test_listeners_delay_no_other_client_and_leave_nothing(client, engine, port, monkeypatch):
    monkeypatch.setattr("hocket.service.broadcast._KEEP_ALIVE_S", 3600.0)
    with asking(port, 300, "/v1/events") as sockets:
        assert all(b"200 OK" in each.recv(1000) for each in sockets)
        assert client.get("/v1/status").status == 200
        submit(client, {**JOB, "id": "a"})
        for each in sockets:
            told = b""
            while b"event: job" not in told:
                more = each.recv(1000)
                assert more, told
                told += more
    *_, say = engine.on_jobs_changed
    until = time.monotonic() + 120
    while len(say.__self__._listeners):
        assert time.monotonic() < until
        gc.collect()
        time.sleep(0.005)


def test_agents_that_wait_for_orders_delay_no_other_client(client, engine, port, monkeypatch):
    monkeypatch.setattr("hocket.service.agent_calls.POLL_S", 3600.0)
    monkeypatch.setattr(engine.sessions, "lease_s", 1e6)
    session = engine.sessions.open("there", "127.0.0.1")
    asked = []
    orders = engine.sessions.orders
    monkeypatch.setattr(engine.sessions, "orders", lambda *said: asked.append(said) or orders(*said))
    with asking(port, 100, f"/v1/agents/{session}/orders"):
        try:
            until = time.monotonic() + 120
            while len(asked) < 100:
                assert time.monotonic() < until
                time.sleep(0.005)
            assert client.get("/v1/status").status == 200
        finally:
            engine.sessions.close()  # They go.


def test_an_agent_with_the_name_of_another_is_refused_and_the_other_keeps_its_session(client, engine):
    hello = {"node": {"id": "twice", "gpus": 1}, "address": "127.0.0.1"}
    first = client.post("/v1/agents/hello", {**hello, "state": "a"})
    second = client.post("/v1/agents/hello", {**hello, "state": "b"})
    assert (first.status, second.status) == (200, 409)
    assert "node 'twice' has an agent with another state folder already" in second.json()["error"]
    assert engine.sessions.node_of(first.json()["session"]) == "twice"


def test_a_node_with_more_gpus_than_there_can_be_does_not_join(client, engine):
    said = client.post("/v1/agents/hello", {"node": {"id": "huge", "gpus": 1025}, "address": "127.0.0.1"})
    assert (said.status, said.json()["error"]) == (400, "node 'huge': gpus must be from 0 to 1024, not 1025")
    assert not engine.sessions.has("huge")


@pytest.mark.parametrize("path", ["/v1/agents/hello", "/v1/jobs"])
def test_a_client_that_dies_while_sending_is_no_error(app, path):
    told = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        told.append(message)

    headers = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"content-length", b"10")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    assert [m["status"] for m in told if m["type"] == "http.response.start"] == [400]


def test_until_the_agent_of_its_machine_has_connected_only_agents_are_served(client, ready, engine):
    ready.clear()
    refused = client.post("/v1/jobs", {"jobs": [JOB]})
    assert (refused.status, "is starting" in refused.json()["error"]) == (503, True)
    assert (client.get("/v1/health").status, client.get("/v1/health").json()["ok"]) == (503, False)
    session = engine.sessions.open("there", "127.0.0.1")
    assert client.post(f"/v1/agents/{session}/alive", {}).status == 200
    ready.set()
    assert client.get("/v1/health").json()["ok"]
    submit(client, JOB)


class Uncertain(NoOthers):
    """A journal in a database that does not answer, or that another controller may have."""

    since_s = 0.0

    def unconfirmed_s(self):
        return self.since_s

    def urls(self):
        return ("http://here:1", "http://there:2")


def test_a_controller_that_may_have_lost_its_journal_lets_no_agent_go_on(engine, client, monkeypatch):
    others = Uncertain()
    monkeypatch.setattr(engine.journal, "others", others)
    session = engine.sessions.open("there", "127.0.0.1")
    calls = [("POST", f"/v1/agents/{session}/alive"), ("GET", f"/v1/agents/{session}/orders")]
    engine.sessions.lease_s = 8.0
    others.since_s = 1.0
    assert client.call(*calls[0]).json() == {"controllers": ["http://here:1", "http://there:2"]}
    others.since_s = 1.01  # more than an eighth of the lease
    for method, path in calls:
        refused = client.call(method, path)
        assert refused.status == 503
        assert "not certain" in refused.json()["error"]


def test_a_controller_that_lost_its_journal_is_not_healthy(engine, client):
    assert client.get("/v1/health").status == 200
    engine.journal._lose("it was taken over")
    assert client.get("/v1/health").status == 503
