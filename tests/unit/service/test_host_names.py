"""A request must call the controller by one of its names: a web page that was given its address does not."""

import socket

import pytest
from tests.unit.service.conftest import TOKEN

from hocket.service.app import make_app
from hocket.service.host_names import HostNames


@pytest.fixture
def app(engine, secrets_key):
    return make_app(engine, TOKEN, lambda _grace_s: None, hosts=HostNames(["Head.lab"]), secrets_key=secrets_key)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:7333", "[::1]", "[::1]:80", "10.0.0.5:1", "head.lab:7333",
     "head.lab.", socket.gethostname()],
)  # fmt: skip
def test_its_own_names_and_addresses_are_served(client, host):
    assert client.get("/v1/health", Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io"])
def test_other_names_are_refused_with_and_without_a_token(client, stranger, host):
    for caller in (client, stranger):
        for path in ("/v1/health", "/v1/jobs"):
            answer = caller.get(path, Host=host)
            assert answer.status == 421, answer.text
            assert "is no name of this controller" in answer.json()["error"]
            assert "--host-name" in answer.json()["error"]
