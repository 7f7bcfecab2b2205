"""The API over real HTTP, on a real engine and journal, with a node but no agent behind it."""

import json
import socket
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from threading import Event as Flag

import pytest
import uvicorn

from hocket.agent.protocol import Hello
from hocket.executors.agents.executor import agents
from hocket.model.resources import Node
from hocket.policies import find
from hocket.service.app import make_app
from hocket.service.connections import Limits, guarded
from hocket.service.engine import Engine
from hocket.service.history_process import HistoryProcess
from hocket.service.history_worker import HistorySource
from hocket.service.home import Home
from hocket.service.secret_store import KeyFile

TOKEN = "a-token-of-the-tests"


class Answer:
    """What came back."""

    def __init__(self, status, body):
        self.status, self.body = status, body

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


class Caller:
    """Calls the API, with the token or with other headers."""

    def __init__(self, port, headers):
        self.port, self.headers = port, headers

    def call(self, method, path, body=None, **headers):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in {**self.headers, **headers}.items():
            connection.putheader(name, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        found = Answer(response.status, response.read())
        connection.close()
        return found

    def get(self, path, **headers):
        return self.call("GET", path, **headers)

    def post(self, path, body=b"", **headers):
        return self.call("POST", path, body, **headers)

    def put(self, path, body=b"", **headers):
        return self.call("PUT", path, body, **headers)

    def await_state(self, job, state):
        until = time.monotonic() + 60
        while (found := self.get(f"/v1/jobs/{job}").json()["state"]) != state:
            assert time.monotonic() < until, found
            time.sleep(0.01)


@contextmanager
def busy(engine, waiting):
    """The controller's thread stands in a cycle; it goes on when so many calls wait for the next one."""
    stands, go_on = Flag(), Flag()

    def make(_state, _now_s):
        stands.set()
        go_on.wait(120)
        return []

    engine.executor.post(make)
    assert stands.wait(120)
    try:
        yield
        until = time.monotonic() + 120
        while len(engine.executor._inbox) < waiting:
            assert time.monotonic() < until
            time.sleep(0.005)
    finally:
        go_on.set()


@pytest.fixture
def engine(tmp_path):
    found = Engine(str(tmp_path / "journal.db"), agents(300.0), find("las").bound())
    found.start()
    found.sessions.open("here", "127.0.0.1")
    found.executor.post(found.executor.hello(Hello(Node("here", 2, cores=4.0), "127.0.0.1"))).result(60)
    yield found
    found.close()


@pytest.fixture
def ready():
    flag = threading.Event()
    flag.set()
    return flag


@pytest.fixture
def secrets_key(tmp_path):
    home = Home(tmp_path)
    return KeyFile(home.secrets_key, home.write)


@pytest.fixture
def history(engine, tmp_path):
    """Looks at the past, by a process that begins when it is first asked."""
    found = HistoryProcess(HistorySource(engine.journal.name, index=str(tmp_path / "history.db")))
    yield found
    found.close()


@pytest.fixture
def app(engine, ready, secrets_key, history):
    return make_app(
        engine, TOKEN, lambda _grace_s: None, is_ready=ready.is_set, secrets_key=secrets_key, history=history
    )


@pytest.fixture
def limits():
    return Limits()


@pytest.fixture
def tls():
    """What the server shows to its clients; None: it speaks no TLS."""
    return


@pytest.fixture
def port(app, limits, tls):
    listener = socket.create_server(("127.0.0.1", 0))
    http = guarded(limits, tls)
    config = uvicorn.Config(app, http=http, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server broke"
        time.sleep(0.005)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(60)
    listener.close()


@pytest.fixture
def client(port):
    return Caller(port, {"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def with_token(port, client):
    """Makes a caller with a token of its own: a role, and an owner or a node."""

    def made(role, name="", **given):
        answer = client.post("/v1/tokens", {"name": name or f"{role}-1", "role": role, **given})
        assert answer.status == 200, answer.text
        return Caller(port, {"Authorization": f"Bearer {answer.json()['token']}"})

    return made


@pytest.fixture
def stranger(port):
    return Caller(port, {})
