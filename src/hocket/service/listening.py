"""Where a controller listens: an address and a port, or a socket in the file system that only its owner may use."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

LOOPBACK = "127.0.0.1"
_UNIX = "unix:"
_WAITING = 128  # connections that are not accepted yet


class Tls(Struct, frozen=True):
    """Files of PEM: the controller's certificate and key, and what clients are to trust instead of the certificate."""

    cert: str
    key: str
    ca: str = ""

    def names(self) -> list[str]:
        """The host names in the certificate, but for patterns."""
        from cryptography.x509 import DNSName, ExtensionNotFound, SubjectAlternativeName, load_pem_x509_certificate

        try:
            certificate = load_pem_x509_certificate(Path(self.cert).expanduser().read_bytes())
            named = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        except (OSError, ValueError, ExtensionNotFound):  # What is wrong with it is said where it is used.
            return []
        return [name for name in named.get_values_for_type(DNSName) if "*" not in name]


def called_at(url: str, advertise: str = "") -> str:
    """The url at which other machines call a controller: as its user says, or by its host name."""
    if advertise:
        return advertise
    return url.replace("://0.0.0.0:", f"://{socket.gethostname()}:")


class Listening:
    """A socket, and the url of it; from `begin` on, callers can connect."""

    def __init__(
        self,
        listen: str,
        port: int | None,
        last_port: int,
        tls: Tls | None = None,
        insecure: bool = False,
        option: str = "--listen",
        carries: str = "tokens and jobs",
    ) -> None:
        """At `unix:PATH`, or at an address: at the port, or else at the last one if that can be had. Raises OSError.

        Raises ValueError for an address that other machines reach, without a certificate, unless that is said to be
        well: all who can listen to the network would have the tokens. `option` is what named the address,
        and `carries` what goes over it.
        """
        self._path: Path | None = None
        if listen.startswith(_UNIX):
            if tls is not None:
                raise ValueError(f"a certificate is for an address; '{listen}' needs none")
            self._path = Path(listen.removeprefix(_UNIX).removeprefix("//")).expanduser().absolute()
            self.socket = _at_path(self._path)
            self.url = f"unix://{self._path}"
        else:
            self.socket = _at_port(listen, port if port is not None else last_port, exactly=port is not None)
            if not (self.is_local or tls is not None or insecure):
                self.socket.close()
                raise ValueError(
                    f"{option} {listen} would send {carries} over the network in plain text: give --tls-cert and "
                    "--tls-key, or say --insecure-listen if all who can listen to that network may have them"
                )
            scheme = "https" if tls is not None else "http"
            self.url = f"{scheme}://{listen}:{self.socket.getsockname()[1]}"

    def begin(self) -> None:
        """Let callers connect; until then they are refused. Raises OSError."""
        try:
            self.socket.listen(_WAITING)
        except OSError as error:  # Another process may have begun to listen there since it was bound.
            raise OSError(f"cannot listen at {self.url}: {error.strerror or error}") from error

    @property
    def is_local(self) -> bool:
        """Can only processes of this machine reach it?"""
        return self._path is not None or str(self.socket.getsockname()[0]).startswith("127.")

    def close(self) -> None:
        """Listen no more."""
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _at_port(host: str, port: int, exactly: bool) -> socket.socket:
    # With its protocol named, or asyncio would not tell it to send at once, and each answer would wait for 40 ms.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            found.bind((host, port))
        except OSError:
            if exactly:
                raise
            found.bind((host, 0))
    except OSError as error:
        found.close()
        raise OSError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return found


def _at_path(path: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(f"cannot listen at unix:{path}: something else stands there")
        path.unlink()  # Of a controller that was killed: we hold the journal, so there is no other.
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    was = os.umask(0o177)  # 0600 from its first moment.
    try:
        found.bind(str(path))
    except OSError as error:
        found.close()
        raise OSError(f"cannot listen at unix:{path}: {error.strerror or error}") from error
    finally:
        os.umask(was)
    return found
