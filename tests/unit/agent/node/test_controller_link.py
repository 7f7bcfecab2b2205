"""Calls to the controller, and each way in which one may fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hocket.agent.node.controller_link import Away, CallRefused, Credentials, Gone, Link, Patience, Session
from hocket.agent.node.controllers import Controllers
from hocket.agent.protocol import Hello, Welcome
from hocket.model.resources import Node


@pytest.fixture
def link(controller: Any, tmp_path: Path) -> Iterator[Link]:
    (tmp_path / "token").write_text("a-token")
    made = link_to(controller.url, tmp_path)
    yield made
    made.close()


def link_to(url: str, folder: Path) -> Link:
    return Link(Controllers(url, str(folder / "controllers")), Credentials(str(folder / "token")))


HELLO = Hello(Node("n0"), "127.0.0.1")


@pytest.mark.usefixtures("controller")
def test_a_session_is_joined_once_and_again_when_it_is_gone(link: Link) -> None:
    session = Session(lambda _: HELLO)
    assert session.joined(link).session == session.joined(link).session == "s1"
    session.is_gone("another")
    assert session.joined(link).session == "s1"
    session.is_gone("s1")
    assert session.joined(link).session == "s2"


@pytest.mark.parametrize(("status", "kind"), [(410, Gone), (503, Away), (500, Away), (429, Away), (404, CallRefused)])
def test_each_answer_has_its_meaning(controller: Any, link: Link, status: int, kind: type[Exception]) -> None:
    controller.answer_with["reports"] = status
    with pytest.raises(kind, match=f"answers {status}: as the test wants it"):
        link.call("POST", "/v1/agents/s1/reports", b"[]")


def test_a_connection_that_was_closed_meanwhile_is_opened_again(controller: Any, link: Link) -> None:
    session = Session(lambda _: HELLO)
    session.joined(link)
    controller.stop()
    controller.start()
    assert link.call("GET", "/v1/agents/s1/orders?after=0") == b"[]"
    assert link.own_address() == "127.0.0.1"


def test_no_controller_is_away(controller: Any, link: Link) -> None:
    controller.stop()
    with pytest.raises(Away, match="Connection refused"):
        link.call("GET", "/v1/agents/s1/orders?after=0")
    with pytest.raises(Away, match="Connection refused"):
        link.own_address()
    controller.start()


def test_one_that_never_answers_is_away(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link = link_to(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        with pytest.raises(Away, match="timed out"):
            link.call("GET", "/", within_s=0.05)


def test_one_that_speaks_something_else_is_away(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=answer, daemon=True).start()
        link = link_to(f"http://127.0.0.1:{server.getsockname()[1]}", tmp_path)
        with pytest.raises(Away):
            link.call("GET", "/")
        link.close()


def test_a_token_is_read_again_when_it_is_not_taken(controller: Any, link: Link, tmp_path: Path) -> None:
    controller.token = "new"
    with pytest.raises(CallRefused, match="does not take the token in") as refused:
        link.call("POST", "/v1/agents/s1/reports", b"[]")
    assert refused.value.status == 401
    (tmp_path / "token").write_text("new\n")
    with pytest.raises(Gone):
        link.call("POST", "/v1/agents/unknown/reports", b"[]")


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://", ""])
def test_a_url_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with pytest.raises(ValueError, match="url must be http://HOST:PORT"):
        link_to(url, tmp_path)


def test_patience_grows_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience()
    waits = [patience.wait_s(Away("away")) for _ in range(12)]
    assert waits[0] <= 0.05
    assert 0.7 <= waits[-1] <= 1.0
    patience.reset()
    assert patience.wait_s(Away("away")) <= 0.05
    assert [(r.name, r.levelname) for r in caplog.records if "away; trying again" in r.message] == [
        ("hocket.agent", "WARNING")
    ] * 2


def test_an_order_of_a_session_that_is_gone_is_not_carried_out() -> None:
    """Its answer was under way for long, and the agent has said hello since: the controller counts on that."""
    session, did = Session(lambda _: HELLO), list[str]()
    answers = iter(msgspec.json.encode(Welcome(name, 10.0, 5.0)) for name in ("s1", "s2"))
    link: Any = SimpleNamespace(call=lambda *_: next(answers))
    assert not session.carry_out("s1", lambda: did.append("before hello"))
    session.joined(link)
    assert session.carry_out("s1", lambda: did.append("now"))
    session.is_gone("s1")
    assert not session.carry_out("s1", lambda: did.append("when it is gone"))
    session.joined(link)
    assert not session.carry_out("s1", lambda: did.append("in another"))
    assert did == ["now"]


def test_hello_is_not_said_while_an_order_is_carried_out() -> None:
    session = Session(lambda _: HELLO)
    link: Any = SimpleNamespace(call=lambda *_: msgspec.json.encode(Welcome("s", 10.0, 5.0)))
    session.joined(link)
    order = threading.Event()
    hello = threading.Thread(target=lambda: session.joined(link))

    def carry_out() -> None:
        session.is_gone("s")
        hello.start()
        assert not order.wait(0.05)
        assert session._welcome is None

    assert session.carry_out("s", carry_out)
    hello.join()
    assert session._welcome is not None


def test_a_call_that_waits_fails_when_another_controller_leads(controller: Any, tmp_path: Path) -> None:
    """One that is stopped answers nothing, and its connections stay open."""
    (tmp_path / "token").write_text("a-token")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        controllers = Controllers(f"http://127.0.0.1:{silent.getsockname()[1]}", str(tmp_path / "controllers"))
        link = Link(controllers, Credentials(str(tmp_path / "token")))
        accepted: list[socket.socket] = []

        def lead() -> None:
            accepted.append(silent.accept()[0])
            accepted[0].recv(1)  # The call is under way.
            controllers.url = controller.url
            for call in controllers.when_changed:
                call()

        threading.Thread(target=lead, daemon=True).start()
        with pytest.raises(Away):
            link.call("GET", "/v1/agents/s1/orders?after=0", within_s=600.0)
        session = Session(lambda _: HELLO)
        assert session.joined(link).session  # of the one that leads
        link.close()
        accepted[0].close()
