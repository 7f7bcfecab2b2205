"""Connections that say nothing or read nothing keep no one else from being answered, and are closed in time."""

import logging
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack

import pytest
from tests.unit.service.conftest import TOKEN

from hocket.agent.protocol import ReadLog, Report, RunKey
from hocket.service.connections import Connections, Limits

HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n"
WITH_TOKEN = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
PATIENCE_S = 60.0  # far more than anything here takes


def opened(within, port, said=b""):
    connection = within.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
    connection.sendall(said)
    return connection


def is_closed(connection):
    """Waits for its end."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def sends_until_closed(connection, said):
    """Sends it again and again."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            connection.sendall(said)
        except OSError:
            return True
        time.sleep(0.02)
    return False


def status(connection):
    said = b""
    while b"\r\n\r\n" not in said:
        more = connection.recv(4096)
        assert more, "it was closed"
        said += more
    return int(said.split()[1])


class TestSlowClients:
    @pytest.fixture
    def limits(self):
        return Limits(header_s=0.3, body_s=0.3, slowest=1e9)

    @pytest.mark.parametrize(
        "said",
        [
            b"",
            b"GET /v1/jobs HT",
            HEALTH,
            b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 100\r\n" + WITH_TOKEN + b"\r\n{",
            b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 100\r\nHost: x\r\n\r\n{",
        ],
        ids=["nothing", "half a line", "half a header", "half a body", "half a body without a token"],
    )
    def test_a_request_that_does_not_come_to_its_end_is_closed(self, port, said):
        with ExitStack() as within:
            assert is_closed(opened(within, port, said))

    def test_so_is_the_second_one_on_a_connection(self, port):
        with ExitStack() as within:
            connection = opened(within, port, HEALTH + b"\r\n")
            assert status(connection) == 200
            connection.sendall(b"GET /v1/heal")
            assert is_closed(connection)

    def test_bytes_that_drip_do_not_prolong_it(self, port):
        with ExitStack() as within:
            assert sends_until_closed(opened(within, port), b"G")

    def test_empty_lines_do_not_either(self, port):
        with ExitStack() as within:
            connection = opened(within, port, HEALTH + b"\r\n")
            assert status(connection) == 200
            assert sends_until_closed(connection, b"\r\n")

    def test_a_call_that_waits_for_its_answer_is_not_closed(self, client, engine):
        session = engine.sessions.open("there", "127.0.0.1")
        engine.sessions.lease_s = 3.0  # It is answered after a third of that.
        assert client.get(f"/v1/agents/{session}/orders?after=0").status == 200


class TestLongHeaders:
    @pytest.fixture
    def limits(self):
        return Limits(header_s=300.0, header_bytes=20_000)

    @pytest.mark.parametrize("again", [b"X-Long: 1\r\n", b"x"], ids=["many", "one long one"])
    def test_a_header_without_an_end_is_closed(self, port, again):
        with ExitStack() as within:
            assert sends_until_closed(opened(within, port, HEALTH), 1000 * again)

    def test_one_that_is_long_but_ends_is_answered_again_and_again(self, port):
        with ExitStack() as within:
            connection = opened(within, port)
            for _ in range(5):
                connection.sendall(HEALTH + b"X-Long: " + 9_000 * b"x")
                time.sleep(0.05)  # What comes in one piece is not counted.
                connection.sendall(b"\r\n\r\n")
                assert status(connection) == 200


class TestManyClients:
    @pytest.fixture
    def limits(self):
        return Limits(header_s=300.0, unproven=16, young_s=0.0)

    def test_those_without_a_token_make_room_for_each_other_and_for_all_who_have_one(self, port, client):
        with ExitStack() as within:
            proven = opened(within, port, b"GET /v1/jobs HTTP/1.1\r\n" + WITH_TOKEN + b"\r\n")
            assert status(proven) == 200
            crowd = [opened(within, port, HEALTH) for _ in range(200)]
            assert client.get("/v1/status").status == 200
            assert all(is_closed(connection) for connection in crowd[:150])
            proven.sendall(b"GET /v1/jobs HTTP/1.1\r\n" + WITH_TOKEN + b"\r\n")
            assert status(proven) == 200, "it is not closed for them"

    def test_health_without_a_token_proves_nothing(self, port):
        with ExitStack() as within:
            healthy = opened(within, port, HEALTH + b"\r\n")
            assert status(healthy) == 200
            for _ in range(40):
                opened(within, port, HEALTH)
            assert is_closed(healthy)


class TestTls:
    @pytest.fixture
    def tls(self, tmp_path):
        if shutil.which("openssl") is None:
            pytest.skip("a certificate is made with the command `openssl`")
        cert, key = (str(tmp_path / name) for name in ("cert.pem", "key.pem"))
        make = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
        ]
        make += ["-days", "2", "-subj", "/CN=hocket", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(make, check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key)
        self.trust = ssl.create_default_context(cafile=cert)
        return context

    @pytest.fixture
    def limits(self, request):
        return Limits(**getattr(request, "param", {}))

    def secure(self, within, port, said):
        connection = opened(within, port)
        secured = within.enter_context(self.trust.wrap_socket(connection, server_hostname="127.0.0.1"))
        secured.sendall(said)
        return secured

    def test_requests_are_answered(self, port):
        with ExitStack() as within:
            for _ in range(3):
                connection = self.secure(within, port, b"GET /v1/jobs HTTP/1.1\r\n" + WITH_TOKEN + b"\r\n")
                assert status(connection) == 200
                connection.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
                assert status(connection) == 401

    @pytest.mark.parametrize("limits", [{"header_s": 0.3}], indirect=True)
    @pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01", HEALTH + b"\r\n"])
    def test_a_handshake_that_does_not_come_to_its_end_is_closed(self, port, said):
        with ExitStack() as within:
            assert is_closed(opened(within, port, said))

    @pytest.mark.parametrize("limits", [{"header_s": 0.3}], indirect=True)
    def test_so_is_a_request_after_the_handshake(self, port):
        with ExitStack() as within:
            assert is_closed(self.secure(within, port, b"GET /v1/jo"))

    @pytest.mark.parametrize("limits", [{"header_s": 300.0, "unproven": 16, "young_s": 0.0}], indirect=True)
    def test_handshakes_that_hang_make_room_for_each_other_and_for_all_who_have_a_token(self, port):
        with ExitStack() as within:
            crowd = [opened(within, port, b"\x16\x03\x01") for _ in range(200)]
            proven = self.secure(within, port, b"GET /v1/jobs HTTP/1.1\r\n" + WITH_TOKEN + b"\r\n")
            assert status(proven) == 200
            assert all(is_closed(connection) for connection in crowd[:150])


class _Connection:
    def __init__(self):
        self.is_aborted = False
        self.transport = self

    def abort(self):
        self.is_aborted = True


@pytest.fixture
def in_a_loop(monkeypatch):
    class Loop:
        now_s = 0.0

        def time(self):
            return self.now_s

    loop = Loop()
    monkeypatch.setattr("hocket.service.connections.asyncio.get_running_loop", lambda: loop)
    return loop


@pytest.mark.usefixtures("in_a_loop")
def test_one_address_has_its_share_and_this_machine_has_room_of_its_own():
    connections = Connections(Limits(unproven=8, unproven_by_peer=2, young_s=0.0, total=10))
    far = [_Connection() for _ in range(4)]
    assert all(connections.admits(each, "10.0.0.9") for each in far)
    assert [each.is_aborted for each in far] == [True, True, False, False]
    for each in far[:2]:
        connections.lost(each)
    for each in far[2:]:
        connections.proven(each)
    others = [_Connection() for _ in range(8)]
    for n, each in enumerate(others):
        assert connections.admits(each, f"10.0.1.{n}")
        connections.proven(each)
    local = _Connection()
    assert not connections.admits(_Connection(), "10.0.0.77"), "ten are open, all with a token"
    assert connections.admits(local, "127.0.0.1"), "for this machine there is one more"
    assert connections.admits(_Connection(), ""), "and a second for one that has shown no token"
    assert local.is_aborted


def test_a_connection_has_a_moment_to_show_its_token(in_a_loop):
    connections = Connections(Limits(unproven=2, young_s=1.0))
    burst = [_Connection() for _ in range(9)]
    assert all(connections.admits(each, "") for each in burst)
    assert not any(each.is_aborted for each in burst)
    in_a_loop.now_s = 1.0
    assert connections.admits(_Connection(), "")
    assert [each.is_aborted for each in burst] == [True, *[False] * 8]


def test_thousands_of_closed_connections_are_one_line_in_the_log(in_a_loop, caplog):
    connections = Connections(Limits(unproven=1, young_s=0.0))
    with caplog.at_level(logging.WARNING, "hocket.service"):
        for n in range(3000):
            in_a_loop.now_s = n / 100
            connections.admits(_Connection(), "")
            assert len(caplog.records) <= 1
        in_a_loop.now_s = 90.0
        connections.admits(_Connection(), "")
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("1 connections were closed")
    assert second.startswith("2999 connections were closed")


def test_many_readers_of_one_log_keep_no_other_call_waiting(port, client, engine, monkeypatch):
    monkeypatch.setattr("hocket.service.job_output._PATIENCE_S", 300.0)
    client.post("/v1/jobs", {"jobs": [{"id": "j", "command": ["true"], "cwd": "/"}]})
    started = Report(RunKey("j", 1), 1, time.time(), "started", {"pids": [1]})
    engine.executor.report([started], "here").result(PATIENCE_S)
    with ExitStack() as within:
        path = b"GET /v1/jobs/j/log HTTP/1.1\r\n"
        readers = [opened(within, port, path + WITH_TOKEN + b"\r\n") for _ in range(200)]
        session = next(iter(engine.sessions._sessions))
        asked = []
        until = time.monotonic() + PATIENCE_S
        while len(asked) < 200:
            assert time.monotonic() < until
            asked = [n.order for n in engine.sessions.orders(session, 0, 0.1) if isinstance(n.order, ReadLog)]
        assert client.get("/v1/health").status == 200
        assert client.get("/v1/jobs").status == 200
        for order in asked:
            answer = client.post(f"/v1/agents/{session}/logs/{order.request}", {"a": 1})
            assert answer.status == 200
        assert [status(reader) for reader in readers] == [200] * 200
