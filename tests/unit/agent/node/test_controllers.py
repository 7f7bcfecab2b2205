"""Several controllers, of which one leads."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from hocket.agent.node.controllers import Controllers


@pytest.fixture
def leader():
    """A controller that says that it leads, or not."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.path == "/v1/health"
            assert "Authorization" not in self.headers  # The token is only for one that leads.
            self.send_response(self.server.status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        server.status, server.url = 200, f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


GONE = "http://127.0.0.1:9"  # Nothing listens there.


def test_an_agent_with_one_controller_stays_with_it(tmp_path):
    controllers = Controllers(GONE, str(tmp_path / "controllers"))
    controllers.learn(())
    assert not controllers.find_leader()
    assert controllers.url == GONE
    assert not (tmp_path / "controllers").exists()


def test_one_that_leads_is_called_from_now_on_and_all_threads_are_told(tmp_path, leader):
    controllers = Controllers(GONE, str(tmp_path / "controllers"))
    told = []
    controllers.when_changed.append(lambda: told.append(controllers.url))
    controllers.learn((GONE, "http://127.0.0.1:10", leader.url))
    assert controllers.find_leader()
    assert controllers.url == leader.url
    assert told == [leader.url]
    assert not controllers.find_leader()  # None but ours leads.


def test_one_that_does_not_lead_is_not_called(tmp_path, leader):
    leader.status = 503
    controllers = Controllers(GONE, str(tmp_path / "controllers"))
    controllers.learn((leader.url,))
    assert not controllers.find_leader()
    assert controllers.url == GONE


def test_what_was_told_is_known_after_a_restart(tmp_path, leader):
    file = str(tmp_path / "controllers")
    Controllers(GONE, file).learn((GONE, leader.url))
    controllers = Controllers(GONE, file)
    assert controllers.find_leader()
    # And back to the first, which the list need not name.
    controllers.learn((leader.url,))
    assert controllers._others() == [GONE]


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "[1, null]"])
def test_a_damaged_file_is_as_none(tmp_path, text):
    (tmp_path / "controllers").write_text(text)
    assert Controllers(GONE, str(tmp_path / "controllers"))._others() == []


def test_a_controller_that_is_called_securely_is_never_left_for_one_that_is_not(tmp_path, leader):
    controllers = Controllers("https://127.0.0.1:9", str(tmp_path / "controllers"))
    controllers.learn((leader.url,))
    assert not controllers.find_leader()
