"""Where a controller listens: `http://HOST:PORT`, `https://HOST:PORT` or `unix:///PATH`."""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

_UNIX = "unix://"


def connection(url: str, timeout_s: float, ca: str = "") -> HTTPConnection:
    """A connection that is opened when it is used. With a file of certificates, those alone are trusted.

    Raises ValueError for a url that is none, and OSError for certificates that cannot be read.
    """
    if url.startswith(_UNIX):
        return UnixConnection(url.removeprefix(_UNIX), timeout_s)
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https"):
        raise ValueError(f"url must be http://HOST:PORT, https://HOST:PORT or unix:///PATH, not {url[:80]!r}")
    if parts.scheme == "http":
        return HTTPConnection(host, port, timeout=timeout_s)
    from ssl import create_default_context

    return HTTPSConnection(host, port, timeout=timeout_s, context=create_default_context(cafile=ca or None))


class UnixConnection(HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.settimeout(self.timeout)
        try:
            opened.connect(self._path)
        except OSError:
            opened.close()
            raise
        self.sock = opened
