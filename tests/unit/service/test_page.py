"""The page over HTTP: its files, signing in and out, and what a cookie alone is worth."""

import json
import re
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.unit.service.conftest import TOKEN, Caller

from hocket.executors.agents.executor import agents
from hocket.policies import find
from hocket.service.engine import Engine
from hocket.service.page_files import page_files
from hocket.service.page_sessions import LINK_S, SESSION_S, PageSessions
from hocket.service.tokens import Role, Tokens, TokenSpec

SOURCES = Path(__file__).parents[3] / "src" / "hocket" / "page"
MOST_SENT, MOST_BYTES = 100_000, 220_000  # of all files: as browsers load them, compressed; and as they are
CHANGE = ("POST", "/v1/job-requests", {"request": "pause", "all": True})


def answered(port, method, path, body=None, **headers):
    """The whole response: status, headers, body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    found = response.status, dict(response.headers.items()), response.read()
    connection.close()
    return found


def signed_in(port, **given):
    """A browser's headers after it has signed in: both halves of its session."""
    status, headers, body = answered(port, "POST", "/v1/page/session", given)
    assert status == 200, body
    cookie = headers["set-cookie"].partition(";")[0]
    return {"Cookie": cookie, "X-Hocket-Proof": json.loads(body)["proof"]}


# -- files --------------------------------------------------------------------------------------------------------


def test_the_files_are_small_and_name_nothing_elsewhere():
    files = page_files()
    assert sum(len(file.compressed) for file in files.values()) < MOST_SENT
    assert sum(len(file.body) for file in files.values()) < MOST_BYTES
    assert {path.name for path in SOURCES.iterdir()} == set(files), "each file has a known type"
    for name, file in files.items():
        found = set(re.findall(r"https?://[^\s\"'<>)]+", file.body.decode()))
        assert found <= {"http://www.w3.org/2000/svg"}, name


def test_no_script_makes_markup_from_text():
    for path in SOURCES.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", path.read_text()
        )


def test_every_module_and_style_that_is_named_is_there():
    for path in SOURCES.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (SOURCES / name).exists(), (path.name, name)
    for name in re.findall(r'(?:src|href)="page/([^"]+)"', (SOURCES / "index.html").read_text()):
        assert (SOURCES / name).exists(), name


def test_files_are_sent_without_a_token_with_a_strict_policy_and_by_their_tag(port):
    status, headers, body = answered(port, "GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"page/main.js" in body
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    again = answered(port, "GET", "/", **{"If-None-Match": headers["etag"]})
    assert (again[0], again[2]) == (304, b"")
    status, headers, _body = answered(port, "GET", "/page/main.js", **{"Accept-Encoding": "gzip"})
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["nothing.js", "../__init__.py", "..%2f__init__.py", "", "/etc/passwd"])
def test_only_files_of_the_page_are_sent(port, name):
    assert answered(port, "GET", f"/page/{name}")[0] == 404


# -- signing in ---------------------------------------------------------------------------------------------------


def test_a_link_signs_in_once_as_the_token_that_made_it(port, with_token):
    ana = with_token("user", owner="ana")
    made = ana.post("/v1/page/links").json()
    link = made["path"].removeprefix("/#link=")
    browser = Caller(port, signed_in(port, link=link))
    assert browser.get("/v1/token").json()["owner"] == "ana"
    status, _headers, body = answered(port, "POST", "/v1/page/session", {"link": link})
    assert status == 401
    assert "used before" in json.loads(body)["error"]


def test_a_cookie_is_for_no_script_and_no_other_site_and_does_not_hold_the_token(port):
    _status, headers, body = answered(port, "POST", "/v1/page/session", {"token": TOKEN})
    parts = [part.strip().lower() for part in headers["set-cookie"].split(";")]
    assert {"httponly", "samesite=strict", "path=/"} <= set(parts)
    assert TOKEN not in headers["set-cookie"]
    assert TOKEN not in body.decode()


def test_a_session_needs_both_its_halves(port, stranger):
    both, other = signed_in(port, token=TOKEN), signed_in(port, token=TOKEN)
    assert stranger.get("/v1/jobs", **both).status == 200
    assert stranger.get("/v1/jobs", Cookie=both["Cookie"]).status == 401
    assert stranger.get("/v1/jobs", **{"X-Hocket-Proof": both["X-Hocket-Proof"]}).status == 401
    assert stranger.get("/v1/jobs", **(both | {"X-Hocket-Proof": other["X-Hocket-Proof"]})).status == 401
    name, _, value = both["Cookie"].partition("=")
    for wrong in (
        value[:-1],
        value[:-1] + ("0" if value[-1] != "0" else "1"),
        value.replace(".", ".9", 1),
        "",
        "a.b.c.d",
    ):
        assert stranger.get("/v1/jobs", **(both | {"Cookie": f"{name}={wrong}"})).status == 401
    assert (
        stranger.get("/v1/jobs", **(both | {"Cookie": f"x=1; {both['Cookie']}; y=ü".encode("latin-1")})).status == 200
    )


def test_a_change_must_come_from_the_page_itself(port, stranger):
    both = signed_in(port, token=TOKEN)
    ours = f"http://127.0.0.1:{port}"
    assert stranger.call(*CHANGE, **both, Origin=ours).status == 200
    for origin in ("http://evil.example", f"http://127.0.0.1:{port + 1}", "null"):
        assert stranger.call(*CHANGE, **both, Origin=origin).status == 403, origin
        signing = stranger.post("/v1/page/session", {"token": TOKEN}, Origin=origin)
        assert signing.status == 403, origin
    assert stranger.call(*CHANGE, **both, **{"Sec-Fetch-Site": "cross-site"}).status == 403


def test_roles_hold_for_sessions_as_for_tokens(port, with_token):
    wall = with_token("read")
    token = wall.headers["Authorization"].removeprefix("Bearer ")
    browser = Caller(port, signed_in(port, token=token))
    assert browser.get("/v1/jobs").status == 200
    assert browser.call(*CHANGE).status == 403
    assert browser.post("/v1/tokens", {"name": "x", "role": "admin"}).status == 403
    assert browser.post("/v1/page/links").status == 403, "a session makes no further sessions"


def test_an_agent_does_not_sign_in_and_neither_does_a_wrong_token(port, with_token):
    agent = with_token("agent", node="there").headers["Authorization"].removeprefix("Bearer ")
    assert answered(port, "POST", "/v1/page/session", {"token": agent})[0] == 403
    for wrong in ({"token": "x"}, {"link": "x"}, {"token": "ü"}, {}):
        assert answered(port, "POST", "/v1/page/session", wrong)[0] == 401, wrong
    for wrong in ([], {"tokn": "x"}, {"token": 3}):
        assert answered(port, "POST", "/v1/page/session", wrong)[0] == 422, wrong


def test_a_session_ends_by_signing_out_and_with_its_token(port, client, with_token, engine):
    token = with_token("read").headers["Authorization"].removeprefix("Bearer ")
    first, second = (Caller(port, signed_in(port, token=token)) for _ in range(2))
    assert first.call("DELETE", "/v1/page/session").status == 200
    assert first.get("/v1/jobs").status == 401
    assert second.get("/v1/jobs").status == 200, "it was another session"
    again = PageSessions(Tokens(engine.journal, engine.executor, TOKEN), engine.journal, engine.executor, TOKEN)
    halves = first.headers["Cookie"].encode(), first.headers["X-Hocket-Proof"].encode()
    assert again.find(*halves) is None, "a restart does not bring it back"
    client.post("/v1/tokens/read-1/revoke")
    assert second.get("/v1/jobs").status == 401


def test_a_stream_ends_with_its_session(port, client):
    both = signed_in(port, token=TOKEN)
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/v1/events", headers=both)
    stream = connection.getresponse()
    assert stream.status == 200
    client.post("/v1/jobs", {"jobs": [{"id": "a", "command": ["true"], "cwd": "/"}]})
    assert stream.readline() == b"event: job\n"
    assert Caller(port, both).call("DELETE", "/v1/page/session").status == 200
    client.post("/v1/jobs", {"jobs": [{"id": "b", "command": ["true"], "cwd": "/"}]})
    assert b'"id":"b"' not in stream.read(), "what happens next is not told"
    connection.close()


def test_sessions_survive_a_restart_and_expire(tmp_path):
    now = [1000.0]
    engine = Engine(str(tmp_path / "journal.db"), agents(300.0), find("las").bound())
    engine.start()

    def sessions(home_token="of-the-home"):
        tokens = Tokens(engine.journal, engine.executor, home_token, lambda: now[0])
        return tokens, PageSessions(tokens, engine.journal, engine.executor, home_token, lambda: now[0])

    tokens, first = sessions()
    session = first.begin(tokens.find(b"of-the-home"))
    halves = f"{first.cookie_name}={session.cookie}".encode(), session.proof.encode()
    assert sessions()[1].find(*halves).is_admin
    assert sessions("another")[1].find(*halves) is None
    short, future = tokens.create(TokenSpec("short", Role.READ, expires_in_s=60.0))
    future.result(60)
    assert first.begin(tokens.find(short.encode())).expires_s == 1060.0, "no longer than its token"
    link, _expires_s = first.make_link(tokens.find(b"of-the-home"))
    late, _expires_s = first.make_link(tokens.find(b"of-the-home"))
    assert first.use_link(link).is_admin
    now[0] += LINK_S
    assert first.use_link(late) is None
    now[0] = 1000.0 + SESSION_S
    assert first.find(*halves) is None
    engine.close()


def test_the_page_is_there_while_the_controller_starts_and_its_data_is_not(port, ready):
    both = signed_in(port, token=TOKEN)
    ready.clear()
    assert answered(port, "GET", "/")[0] == 200
    assert answered(port, "GET", "/page/main.js")[0] == 200
    assert answered(port, "GET", "/v1/jobs", **both)[0] == 503
