"""Where a controller listens, and what it refuses to do without a word."""

import pytest

from hocket.service.listening import Listening, Tls

TLS = Tls("cert.pem", "key.pem")


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
