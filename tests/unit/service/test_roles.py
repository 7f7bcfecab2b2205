"""Who may do what: tokens by role, each route by its line, each job by its owner."""

import asyncio
import http.client
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from starlette.responses import Response
from starlette.routing import Match, Route

from hocket.agent.protocol import ForgetJob, Hello, RunKey
from hocket.executors.agents.executor import agents
from hocket.model.resources import Node
from hocket.policies import find
from hocket.service.engine import Engine
from hocket.service.permissions import PERMISSIONS, Permissions, declared
from hocket.service.tokens import KIND, Role, Tokens, TokenSpec

JOB = {"command": ["python", "train.py", "--key", "of-ana"], "cwd": "/of/ana", "env": {"OF_ANA": "1"}}


def submit(client, **job):
    answer = client.post("/v1/jobs", {"jobs": [JOB | job]})
    assert answer.status == 200, answer.text
    return answer.json()["jobs"][0]


def hello_of(node):
    return msgspec.json.encode(Hello(Node(node, 1), "127.0.0.1", state=f"state of {node}"))


# -- routes -------------------------------------------------------------------------------------------------------


def calls_of(app):
    """Every call that the app serves, as it is declared."""
    return [(method, route.path) for route in app.router.routes for method in sorted(route.methods - {"HEAD"})]


def test_every_route_has_a_declared_permission_and_every_line_a_route(app):
    assert all(isinstance(route, Route) for route in app.router.routes)  # no mount that hides others
    assert {f"{method} {path}" for method, path in calls_of(app)} == set(PERMISSIONS)


def test_a_route_without_a_line_is_refused_to_all(app, client, stranger):
    app.get("/v1/new")(lambda: Response())
    assert client.get("/v1/new").status == 403
    assert "not declared" in client.get("/v1/new").json()["error"]
    assert stranger.get("/v1/new").status == 401


def test_a_websocket_is_refused(app):
    sent = []

    async def connect():
        async def send(message):
            sent.append(message)

        async def talk(websocket):
            await websocket.accept()

        app.router.add_websocket_route("/v1/new", talk)
        await app({"type": "websocket", "path": "/v1/new", "headers": []}, None, send)

    asyncio.run(connect())
    assert sent == [{"type": "websocket.close", "code": 1008}]


# Who gets an answer of the call itself, in the order admin, user, agent, read; a path is filled in with what is there.
MAY = {
    "GET /v1/health": "auwr", "GET /openapi.json": "auwr", "GET /v1/token": "auwr", "GET /metrics": "au-r",
    "GET /v1/job-fields": "au-r", "GET /v1/policies": "au-r", "GET /v1/whatif": "au-r",
    "POST /v1/whatif": "au--", "DELETE /v1/whatif": "au--",
    "GET /v1/studies": "au-r", "GET /v1/studies/{study:text}": "au-r",
    "PUT /v1/studies/{study:text}": "au--", "DELETE /v1/studies/{study:text}": "au--",
    "GET /v1/jobs": "au-r", "GET /v1/jobs/{job_id:path}": "au-r", "GET /v1/jobs/{job_id:path}/why": "au-r",
    "GET /v1/owners": "au-r", "GET /v1/nodes": "au-r", "GET /v1/status": "au-r", "GET /v1/events": "au-r",
    "GET /v1/at": "au-r", "GET /v1/at/{cycle}": "au-r", "GET /v1/cycles": "au-r",
    "GET /v1/jobs/{job_id:path}/log": "au--", "GET /v1/jobs/{job_id:path}/answer": "au--",
    "GET /v1/bundles/{digest}": "au--", "PUT /v1/bundles/{digest}/{offset}": "au--",
    "GET /v1/bundles/{digest}/{offset}": "a-w-",
    "POST /v1/jobs": "au--", "POST /v1/job-requests": "au--",
    "POST /v1/jobs/{job_id:path}/pause": "au--", "POST /v1/jobs/{job_id:path}/resume": "au--",
    "POST /v1/jobs/{job_id:path}/stop": "au--",
    "PUT /v1/owners/{owner_id:text}": "a---", "POST /v1/down": "a---",
    "POST /v1/nodes/{node:text}/drain": "a---", "POST /v1/nodes/{node:text}/undrain": "a---",
    "POST /v1/nodes/{node:text}/reserve": "a---", "POST /v1/nodes/{name:text}/unreserve": "a---",
    "GET /v1/tokens": "a---", "POST /v1/tokens": "a---", "POST /v1/tokens/{name:text}/revoke": "a---",
    "GET /": "auwr", "GET /page/{name:path}": "auwr", "POST /v1/page/session": "auwr", "GET /v1/gpus": "au-r",
    "GET /v1/ahead": "au-r",
    "POST /v1/page/links": "au-r", "DELETE /v1/page/session": "au-r",
    "POST /v1/agents/hello": "a-w-", "POST /v1/agents/{session}/alive": "a-w-",
    "POST /v1/agents/{session}/reports": "a-w-", "GET /v1/agents/{session}/orders": "a-w-",
    "POST /v1/agents/{session}/logs/{log_request}": "a-w-",
}  # fmt: skip
SIGN_IN = "POST /v1/page/session"  # It looks for a token in its body.
OPEN = ("GET /v1/health", "GET /", "GET /page/{name:path}")  # without a token
FILLED = {
    "{name:path}": "main.js", "{job_id:path}": "a", "{owner_id:text}": "ana", "{node:text}": "nowhere",
    "{name:text}": "none", "{cycle}": "1", "{digest}": "0" * 64, "{offset}": "0", "{study:text}": "sweep",
}  # fmt: skip


def test_each_role_may_make_its_calls_and_no_others(app, engine, client, with_token, stranger):
    callers = {
        "a": with_token("admin"),
        "u": with_token("user", owner="ana"),
        "w": with_token("agent", node="there"),
        "r": with_token("read"),
    }
    submit(client, id="a", owner="ana")
    engine.sessions.lease_s = 0.3  # A call for orders stands for a third of it.
    assert {f"{method} {route}" for method, route in calls_of(app)} == set(MAY)
    for call, roles in MAY.items():
        method, path = call.split()
        for hole, filling in FILLED.items():
            path = path.replace(hole, filling)
        for role, caller in callers.items():
            session = engine.sessions.open("there", "127.0.0.1", "s")
            said = path.replace("{session}", session).replace("{log_request}", "x")
            if call == "GET /v1/events":
                status = first_status(caller, said)
            else:
                status = caller.call(method, said, b"{}" if method != "GET" else None).status
            assert (status != 403) == (role in roles), (role, call, status)
            assert status != 401 or call == SIGN_IN
        expected = 200 if call in OPEN else 401
        assert stranger.call(method, path, b"{}" if method != "GET" else None).status == expected, call


def first_status(caller, path):
    """Of an answer without an end."""
    connection = http.client.HTTPConnection("127.0.0.1", caller.port, timeout=60)
    connection.request("GET", path, headers=caller.headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_declaration_is_found_as_the_router_finds_the_route(app):
    permissions = Permissions(app.router.routes)
    for path in ("/v1/jobs/a/b/log", "/v1/jobs/x/why", "/v1/jobs/log", "/v1/nodes/a/drain/drain", "/v1/jobs/a//stop"):
        for method in ("GET", "POST", "PUT", "HEAD", "DELETE"):
            scope = {"type": "http", "method": method, "path": path}
            served = [r for r in app.router.routes if r.matches(scope)[0] is Match.FULL]
            if served and isinstance(served[0], Route):
                assert permissions.of(scope)[1] == declared(method, served[0].path)
    assert declared("DELETE", "/v1/jobs") == frozenset()


# -- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_told_once_and_kept_as_its_digest(client, with_token, engine, tmp_path):
    ana = with_token("user", name="ana-laptop", owner="ana")
    secret = ana.headers["Authorization"].removeprefix("Bearer ")
    assert ana.get("/v1/token").json()["owner"] == "ana"
    (row,) = client.get("/v1/tokens").json()["tokens"]
    assert (row["name"], row["role"], row["owner"], row["expires_s"]) == ("ana-laptop", "user", "ana", None)
    assert "digest" not in row
    assert secret not in client.get("/v1/tokens").text
    assert engine.journal.kept(KIND).keys() == {"ana-laptop"}
    for file in tmp_path.glob("journal*"):
        assert secret.encode() not in file.read_bytes(), file


def test_a_revoked_token_is_refused_at_once_and_its_streams_end(client, with_token, engine):
    ana = with_token("user", owner="ana")
    connection = http.client.HTTPConnection("127.0.0.1", ana.port, timeout=60)
    connection.request("GET", "/v1/events", headers=ana.headers)
    stream = connection.getresponse()
    assert stream.status == 200
    assert client.post("/v1/tokens/user-1/revoke").json() == {"revoked": "user-1"}
    assert ana.get("/v1/jobs").status == 401
    submit(client, id="a", owner="ana")
    assert stream.readline() == b"", "what happens next is not told"
    connection.close()
    assert engine.journal.kept(KIND) == {}
    again = client.post("/v1/tokens/user-1/revoke")
    assert (again.status, again.json()["error"]) == (404, "there is no token 'user-1'; see `hocket token list`")


def test_a_call_for_orders_that_stands_is_refused_when_its_token_is_revoked(client, with_token, engine):
    agent = with_token("agent", node="there")
    welcome = agent.post("/v1/agents/hello", hello_of("there")).json()
    with ThreadPoolExecutor(1) as pool:
        stands = pool.submit(agent.get, f"/v1/agents/{welcome['session']}/orders?after={welcome['orders']}")
        until = time.monotonic() + 60
        session = engine.sessions._sessions[welcome["session"]]
        while not session.changed._waiters:
            assert time.monotonic() < until
            time.sleep(0.005)
        client.post("/v1/tokens/agent-1/revoke")
        engine.sessions.tell("there", [ForgetJob("x")])
        assert stands.result(60).status == 401


def test_tokens_are_those_of_the_journal_and_expire(tmp_path):
    now = [1000.0]

    def opened():
        engine = Engine(str(tmp_path / "journal.db"), agents(300.0), find("las").bound())
        engine.start()
        return engine, Tokens(engine.journal, engine.executor, "of-the-home", lambda: now[0])

    engine, tokens = opened()
    day, future = tokens.create(TokenSpec("day", Role.READ, expires_in_s=86_400.0))
    future.result(60)
    gone, future = tokens.create(TokenSpec("gone", Role.READ))
    future.result(60)
    tokens.revoke("gone").result(60)
    engine.close()
    engine, tokens = opened()
    found = tokens.find(day.encode())
    assert found.name == "day"
    assert tokens.find(gone.encode()) is None
    assert tokens.find(b"") is None
    assert tokens.find(b"of-the-home").is_admin
    now[0] += 86_400.0
    assert tokens.find(day.encode()) is None
    assert not tokens.is_valid(found)
    assert [t.name for t in tokens.listed()] == ["day"], "an expired one is listed until it is revoked"
    engine.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "x", "role": "root"}, ["role", "root"]),
        ({"name": "", "role": "read"}, ["name"]),
        ({"name": "a/b", "role": "read"}, ["name", "a/b"]),
        ({"name": "home", "role": "admin"}, ["name", "'home'"]),
        ({"name": "x", "role": "user"}, ["'x'", "role user", "owner"]),
        ({"name": "x", "role": "agent"}, ["'x'", "role agent", "node"]),
        ({"name": "x", "role": "read", "owner": "ana"}, ["owner", "ana"]),
        ({"name": "x", "role": "user", "owner": "a", "node": "n"}, ["node", "'n'"]),
        ({"name": "x", "role": "read", "expires_in_s": 0}, ["expires_in_s"]),
        ({"name": "x", "role": "read", "expires": 3}, ["expires"]),
    ],
)
def test_a_token_that_breaks_a_rule_is_refused_in_words(client, given, words):
    answer = client.post("/v1/tokens", given)
    assert answer.status == 400, answer.text
    assert all(word in answer.json()["error"] for word in words), answer.text
    assert client.get("/v1/tokens").json() == {"tokens": []}


def test_a_name_is_given_to_one_token(client, with_token):
    with_token("read")
    again = client.post("/v1/tokens", {"name": "read-1", "role": "admin"})
    assert (again.status, "already" in again.json()["error"]) == (409, True)


# -- jobs of owners -----------------------------------------------------------------------------------------------


def test_what_a_user_submits_is_of_its_owner(client, with_token):
    ana = with_token("user", name="laptop", owner="ana")
    submit(ana, id="a")
    submit(ana, id="b", owner="ana")
    rows = {row["id"]: row["owner"] for row in client.get("/v1/jobs").json()["jobs"]}
    assert rows == {"a": "ana", "b": "ana"}
    refused = ana.post("/v1/jobs", {"jobs": [JOB, JOB | {"owner": "bob"}]})
    assert refused.status == 403
    assert all(word in refused.json()["error"] for word in ("'laptop'", "'ana'", "'bob'")), refused.text
    assert len(client.get("/v1/jobs?all=true").json()["jobs"]) == 2


def test_a_user_names_no_command_that_runs_as_the_controller(with_token):
    ana = with_token("user", owner="ana")
    refused = ana.post("/v1/jobs", {"jobs": [JOB | {"notify": ["touch /x"]}]})
    assert (refused.status, "notify" in refused.json()["error"]) == (403, True)
    submit(ana, id="a", notify=["https://example.org/hook"])


def test_a_user_does_not_continue_another_owners_job(client, with_token):
    ana = with_token("user", owner="ana")
    submit(client, id="of-bob", owner="bob")
    client.post("/v1/jobs/of-bob/stop")
    refused = ana.post("/v1/jobs", {"jobs": [JOB | {"continues": "of-bob"}]})
    assert (refused.status, "'bob'" in refused.json()["error"]) == (403, True)


def test_others_see_where_a_job_stands_and_nothing_of_what_it_does(with_token):
    ana, bob, read = with_token("user", owner="ana"), with_token("user", "bob", owner="bob"), with_token("read")
    submit(ana, id="a", until="acc >= 90%")
    submit(ana, id="queued", sizes=[2])
    mine = {row["id"]: row for row in ana.get("/v1/jobs").json()["jobs"]}
    others = {row["id"]: row for row in bob.get("/v1/jobs").json()["jobs"]}
    assert mine["a"]["until"] == "acc >= 90%"
    assert (others["a"]["owner"], others["a"]["gpus"], others["a"]["state"]) == ("ana", ["here:0"], "starting")
    assert (others["a"]["until"], others["a"]["metrics"], others["a"]["reason"]) == ("", {}, "")
    assert others["queued"]["reason"].startswith("waits for 2 GPUs")
    why = bob.get("/v1/jobs/queued/why").json()
    assert (why["past"], why["waits_for"]) == ([], ana.get("/v1/jobs/queued/why").json()["waits_for"])
    assert ana.get("/v1/jobs/queued/why").json()["past"]
    assert bob.get("/v1/jobs/a/why").json()["now"] == "not shown: the job is of owner 'ana'"
    for path in ("/v1/jobs/a", "/v1/jobs/a/log", "/v1/jobs/a/answer"):
        refused = bob.get(path)
        assert refused.status == 403
        assert all(word in refused.json()["error"] for word in ("'bob'", "'a'", "'ana'")), refused.text
    assert ana.get("/v1/jobs/a").json()["job"]["command"] == JOB["command"]
    shown = read.get("/v1/jobs/a")
    assert shown.json()["job"]["until"] == "acc >= 90%"
    for told in (shown.text, bob.get("/v1/jobs").text, read.get("/v1/jobs").text, json.dumps(why)):
        assert not any(word in told for word in ("train.py", "of-ana", "/of/ana", "OF_ANA")), told


def test_the_stream_of_changes_shows_a_user_the_same_as_the_list(client, with_token):
    bob = with_token("user", owner="bob")
    connection = http.client.HTTPConnection("127.0.0.1", bob.port, timeout=60)
    connection.request("GET", "/v1/events", headers=bob.headers)
    stream = connection.getresponse()
    submit(client, id="a", owner="ana", until="acc >= 90%")
    submit(client, id="b", owner="bob", until="acc >= 80%")
    seen = {}
    while "b" not in seen:
        line = stream.readline()
        if line.startswith(b"data: "):
            row = json.loads(line.removeprefix(b"data: "))
            seen[row["id"]] = row["until"]
    assert seen == {"a": "", "b": "acc >= 80%"}
    connection.close()


def test_a_user_changes_its_own_jobs_only(client, with_token):
    bob = with_token("user", owner="bob")
    submit(client, id="of-ana", owner="ana", sizes=[2])
    submit(client, id="of-bob", owner="bob", sizes=[2])
    for request in ("pause", "resume", "stop"):
        assert bob.post(f"/v1/jobs/of-ana/{request}").status == 403
    told = bob.post("/v1/job-requests", {"request": "pause", "jobs": ["of-ana", "of-bob"]}).json()["jobs"]
    assert told == [
        {"id": "of-bob", "state": "held"},
        {"id": "of-ana", "refused": "job 'of-ana' is ana's, not bob's"},
    ]
    assert bob.post("/v1/job-requests", {"request": "stop", "all": True, "owner": "ana"}).status == 403
    stopped = bob.post("/v1/job-requests", {"request": "stop", "all": True, "by": "ana"}).json()["jobs"]
    assert [job["id"] for job in stopped] == ["of-bob"]
    assert client.get("/v1/jobs/of-ana").json()["state"] != "stopped"
    past = client.get("/v1/jobs/of-bob/why").json()["past"]
    assert any("bob" in line["reason"] for line in past), "it says who asked"
    assert not any("ana" in line["reason"].split() for line in past)


# -- agents -------------------------------------------------------------------------------------------------------


def test_an_agent_speaks_for_its_own_node(with_token):
    agent, rack = with_token("agent", node="n1"), with_token("agent", "rack", node="gpu-*")
    assert agent.post("/v1/agents/hello", hello_of("n1")).status == 200
    refused = agent.post("/v1/agents/hello", hello_of("n2"))
    assert refused.status == 403
    assert all(word in refused.json()["error"] for word in ("'agent-1'", "'n1'", "'n2'")), refused.text
    session = rack.post("/v1/agents/hello", hello_of("gpu-7")).json()["session"]
    assert rack.post(f"/v1/agents/{session}/alive").status == 200
    for method, path in (("POST", "alive"), ("POST", "reports"), ("GET", "orders"), ("POST", "logs/x")):
        body = b"[]" if method == "POST" else None
        assert agent.call(method, f"/v1/agents/{session}/{path}", body).status == 403


def test_a_report_of_a_run_that_is_not_on_the_agents_node_is_ignored(client, with_token):
    agent = with_token("agent", node="n1")
    session = agent.post("/v1/agents/hello", hello_of("n1")).json()["session"]
    submit(client, id="a", owner="ana", sizes=[2])  # on node 'here', which has two GPUs
    assert {gpu.partition(":")[0] for gpu in client.get("/v1/jobs/a").json()["gpus"]} == {"here"}
    for event in ("started", "exited", "lost", "cannot-start"):
        report = {"run": msgspec.to_builtins(RunKey("a", 1)), "n": 1, "at_s": 1.0, "event": event, "fields": {}}
        assert agent.post(f"/v1/agents/{session}/reports", [report]).status == 200
        assert client.get("/v1/jobs/a").json()["state"] == "starting", event


def test_the_documents_say_the_same():
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(GET|POST|PUT|DELETE) (/(?:v1/|metrics)[^`?]*)[^|]*\|.*\| ([^|]*) \|$", page, re.MULTILINE)
    said = {}
    for method, path, roles in rows:
        words = {word.partition(" ")[0] for word in roles.split(", ")}
        said[f"{method} {re.sub('{[^}]*}', '{}', path)}"] = {*Role} if "all" in words else words
    meant = {re.sub("{[^}]*}", "{}", call): {role for role in roles if role} for call, roles in PERMISSIONS.items()}
    left_out = {call for call in meant if "/agents/" in call or call.endswith(("/resume", "/stop", ".json"))}
    left_out |= {call for call in meant if "/v1/" not in call and "metrics" not in call}  # the page
    assert said == {call: roles for call, roles in meant.items() if call not in left_out}
