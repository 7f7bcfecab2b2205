"""Where a controller listens, and what it refuses to do without a word."""

import shutil
import subprocess

import pytest

from hocket.service.listening import Listening, Tls

TLS = Tls("cert.pem", "key.pem")


def test_the_names_in_a_certificate_are_names_of_the_controller(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made with the command `openssl`")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key]
    make += ["-out", cert, "-subj", "/CN=x", "-addext", "subjectAltName=IP:10.0.0.5,DNS:head.lab,DNS:*.lab"]
    subprocess.run(make, check=True, capture_output=True)
    assert Tls(cert, key).names() == ["head.lab"]
    assert Tls(key, key).names() == []


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "unix"])
def test_on_its_own_machine_it_listens_without_a_certificate(tmp_path, address):
    listening = Listening(f"unix:{tmp_path / 'socket'}" if address == "unix" else address, None, 0)
    assert listening.is_local
    listening.close()


def test_plain_text_over_a_network_must_be_asked_for():
    with pytest.raises(ValueError, match=r"--listen 0\.0\.0\.0 would send tokens .* plain text.*--insecure-listen"):
        Listening("0.0.0.0", None, 0)
    for secured in ({"tls": TLS}, {"insecure": True}):
        listening = Listening("0.0.0.0", None, 0, **secured)
        assert not listening.is_local
        assert listening.url.startswith("https://" if "tls" in secured else "http://")
        listening.close()
