"""Where a controller listens besides loopback: a socket that is its owner's alone, and HTTPS."""

import shutil
import ssl
import stat
import subprocess
from contextlib import closing
from http.client import HTTPException
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited

from hocket.agent.address import connection


def hocket(controller: LiveController, *args: str, code: int = 0, **env: str) -> str:
    done = controller.types(*args, code=code, **env)
    return str(done.stdout + done.stderr)


@pytest.fixture
def pem(tmp_path: Path) -> tuple[str, str]:
    """A certificate for this machine, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made with the command `openssl`")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    make += ["-days", "2", "-subj", "/CN=hocket", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, check=True, capture_output=True)
    return str(cert), str(key)


@pytest.mark.slow
def test_a_socket_serves_agent_and_users_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with LiveController(tmp_path, "--gpus", "1", "--listen", f"unix:{path}") as controller:
        for _ in range(2):  # A killed one leaves its socket behind.
            controller.begin()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            hocket(controller, "submit", "--wait", "--", "true")
            controller.kill()
        controller.begin()
        assert len(controller.jobs()) == 2
        hocket(controller, "down")
        assert not path.exists()


@pytest.mark.slow
def test_what_stands_where_the_socket_should_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with LiveController(tmp_path, "--listen", f"unix:{path}") as controller:
        controller.start()
        awaited(lambda: controller.code is not None, "it has ended")
        assert controller.code == 2
    assert "something else stands there" in controller.log.read_text()
    assert path.read_text() == "data"


@pytest.mark.slow
def test_https_is_spoken_by_agent_and_users_who_trust_the_controller(tmp_path: Path, pem: tuple[str, str]) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--tls-cert", pem[0], "--tls-key", pem[1]) as controller:
        controller.begin()
        url = controller.url
        assert url.startswith("https://")
        hocket(controller, "submit", "--wait", "--", "true")
        others = ssl.get_default_verify_paths().cafile or pem[1]
        assert "cannot be trusted" in hocket(controller, "jobs", code=2, HOCKET_CA=others)
        with closing(connection(url.replace("https", "http"), 60.0)) as plain:
            plain.request("GET", "/v1/health")
            with pytest.raises((OSError, HTTPException)):
                plain.getresponse()
        hocket(controller, "down")


@pytest.mark.slow
def test_a_key_that_does_not_belong_to_the_certificate_is_refused(tmp_path: Path, pem: tuple[str, str]) -> None:
    with LiveController(tmp_path, "--tls-cert", pem[0], "--tls-key", pem[0]) as controller:
        controller.start()
        awaited(lambda: controller.code is not None, "it has ended")
        assert controller.code == 2
    assert "cannot be used" in controller.log.read_text()
