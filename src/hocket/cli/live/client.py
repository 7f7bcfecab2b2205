"""Talks to the controller that runs in a home folder: `url` says where it listens, `token` lets us in.

`HOCKET_URL` and `HOCKET_TOKEN` come before those files, so that a user of another machine needs no folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from hocket.cli.terminal.errors import InputError

if TYPE_CHECKING:
    from http.client import HTTPConnection

HOME_VARIABLE = "HOCKET_HOME"
CA_VARIABLE = "HOCKET_CA"
URL_VARIABLE, TOKEN_VARIABLE = "HOCKET_URL", "HOCKET_TOKEN"
TIMEOUT_VARIABLE = "HOCKET_TIMEOUT"  # seconds to wait for one answer
_TIMEOUT_S = 120.0  # unless that is set
_FRESH_S = 1.0  # after which a server may have closed a connection that was not used
_MOST_SHOWN = 500  # characters of an answer that is no error of ours
_THEN = {"POST": "see `hocket jobs`", "PUT": "say it again"}  # what to do if it is not known whether a change was made


def _timeout_s() -> float:
    given = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(given or _TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= 86_400.0:
        raise InputError(f"{TIMEOUT_VARIABLE} is a number of seconds, up to a day, not '{given}'")
    return seconds


class ControllerAway(InputError):
    """No controller answers there, or not any more."""


class ControllerRefused(InputError):
    """The controller refused, in one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControllerAnswer:
    """What came back."""

    __slots__ = ("body", "headers")

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.body = body
        self.headers = headers  # by name in lower case

    def json(self) -> Any:
        """The body, read as JSON."""
        import msgspec

        return msgspec.json.decode(self.body)

    def number(self, header: str, default: int) -> int:
        """A header that holds a whole number."""
        text = self.headers.get(header.lower(), "")
        return int(text) if text.removeprefix("-").isdecimal() else default


def home_folder(given: Path | None) -> Path:
    """The folder a controller lives in: as given, `HOCKET_HOME`, or `~/.hocket`."""
    if given is not None:
        return given.expanduser().absolute()
    named = os.environ.get(HOME_VARIABLE, "")
    return Path(named).expanduser().absolute() if named else Path.home() / ".hocket"


def login() -> str:
    """The login name of the user."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container may run under a number that has no name.
        return str(os.getuid())


class Client:
    """One connection, kept open and opened again when it broke; url and token are read anew each time it is opened.

    So a command that waits long finds a controller that was restarted, though it listens elsewhere now.
    """

    def __init__(self, home: Path | None = None, patience_s: float | None = None) -> None:
        self.home = home_folder(home)
        self._patience_s = patience_s if patience_s is not None else _timeout_s()
        self._open: HTTPConnection | None = None
        self._url = self._token = ""
        self._used_s = 0.0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def connect(self) -> None:
        """Open the connection if it is not: raises ControllerAway where no controller listens."""
        self._connected()

    @property
    def url(self) -> str:
        """Where the controller listens that was called last."""
        return self._url

    def get(self, path: str, **query: object) -> ControllerAnswer:
        """Read something; sent once more if the connection turned out to be stale."""
        from urllib.parse import urlencode

        given = {name: str(value).lower() if value is True else value for name, value in query.items() if value != ""}
        whole = f"{path}?{urlencode(given)}" if given else path
        return self._repeatable("GET", whole, None)

    def post(self, path: str, body: object = None) -> ControllerAnswer:
        """Ask for a change, and only once, by a fresh connection: over a stale one it may or may not have arrived."""
        import msgspec

        if monotonic() - self._used_s > _FRESH_S:
            self.close()
        return self._exchange("POST", path, msgspec.json.encode({} if body is None else body))

    def put(self, path: str, body: object) -> ControllerAnswer:
        """Set something; sent once more as `get` does, since setting it twice has the same result."""
        import msgspec

        return self._repeatable("PUT", path, msgspec.json.encode(body))

    def put_bytes(self, path: str, body: bytes) -> ControllerAnswer:
        """As `put`, of a part of a file."""
        return self._repeatable("PUT", path, body, "application/octet-stream")

    def _repeatable(
        self, method: str, path: str, body: bytes | None, kind: str = "application/json"
    ) -> ControllerAnswer:
        if self._open is not None:
            try:
                return self._exchange(method, path, body, kind)
            except ControllerAway:
                pass  # It may only have closed a connection that was idle.
        return self._exchange(method, path, body, kind)

    def _exchange(self, method: str, path: str, body: bytes | None, kind: str = "application/json") -> ControllerAnswer:
        from http.client import HTTPException

        connection = self._connected()
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = kind
        sent = False
        try:
            connection.request(method, path, body, headers)
            sent = True
            # Closed here and not by its finalizer, in which Python would ignore an interrupt.
            with connection.getresponse() as response:
                content = response.read()
            answer = ControllerAnswer(content, {name.lower(): value for name, value in response.headers.items()})
        except TimeoutError as error:
            self.close()
            within = f"{self._patience_s:g} s ({TIMEOUT_VARIABLE} sets it)"
            raise ControllerAway(f"the controller in {self.home} did not answer within {within}") from error
        except (OSError, HTTPException) as error:
            self.close()
            if method in _THEN and sent:
                raise ControllerAway(
                    f"the controller went away before it answered; {_THEN[method]} ({error})"
                ) from error
            raise self._no_controller(f"{self._url} ({error or type(error).__name__})") from error
        self._used_s = monotonic()
        if response.status >= 400:
            raise ControllerRefused(response.status, self._refusal(response.status, answer.body))
        return answer

    def _refusal(self, status: int, body: bytes) -> str:
        if status == 401:
            where = TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else f"{self.home / 'token'}"
            return f"the controller does not accept the token in {where}: it is wrong, was revoked, or has expired"
        import msgspec

        try:
            decoded = msgspec.json.decode(body)
        except msgspec.DecodeError:
            decoded = None
        message = decoded.get("error") or decoded.get("detail") if isinstance(decoded, dict) else None
        if isinstance(message, str):
            return message
        return f"the controller answered {status}: {body[:_MOST_SHOWN].decode(errors='replace') or 'nothing'}"

    def _ca(self) -> str:
        """The certificates to trust: those the controller left in its home, or others that are named."""
        kept = self.home / "ca.pem"
        return os.environ.get(CA_VARIABLE, "") or (str(kept) if kept.exists() else "")

    def _connected(self) -> HTTPConnection:
        if self._open is None:
            from ssl import SSLCertVerificationError

            from hocket.agent.address import connection as connection_to

            where, *others = self._urls()
            self._url, self._token = where, self._read("token", TOKEN_VARIABLE)
            try:
                connection = connection_to(where, self._patience_s, self._ca())
                connection.connect()
            except SSLCertVerificationError as error:
                raise InputError(
                    f"the controller at {where} cannot be trusted: {error.verify_message} (see {CA_VARIABLE})"
                ) from error
            except ValueError as error:
                said_by = URL_VARIABLE if os.environ.get(URL_VARIABLE) else f"{self.home / 'url'}"
                raise InputError(f"{said_by}: {error}") from error
            except OSError as error:
                if (other := self._first_of(others)) is None:
                    raise self._no_controller(where) from error
                connection = other
            self._open = connection
        return self._open

    def _urls(self) -> list[str]:
        """Where the controller listens, and where others of the same journal do, which may have taken over."""
        if os.environ.get(URL_VARIABLE):
            return self._read("url", URL_VARIABLE).split()
        path = self.home / "controllers"
        with suppress(OSError, ValueError):  # Without them there is one controller.
            known = path.read_text(encoding="ascii").split()
            if not (self.home / "url").exists() and known:  # It stands by, and has never led.
                return known
            url = self._read("url", URL_VARIABLE)
            is_secure = url.startswith("https:")
            return [url, *(other for other in known if other != url and (other.startswith("https:") or not is_secure))]
        return [self._read("url", URL_VARIABLE)]

    def _first_of(self, urls: list[str]) -> HTTPConnection | None:
        """A connection to the first of them that listens; those that stand by do not."""
        from hocket.agent.address import connection as connection_to

        for url in urls:
            with suppress(OSError, ValueError):
                connection = connection_to(url, self._patience_s, self._ca())
                connection.connect()
                self._url = url
                return connection
        return None

    def _read(self, name: str, variable: str) -> str:
        if value := os.environ.get(variable, "").strip():
            if not (value.isascii() and value.isprintable()):
                raise InputError(f"{variable} must be one line of ASCII characters")
            return value
        path = self.home / name
        try:
            text = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise self._no_controller(str(self.home)) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if not text or not text.isprintable():
            raise InputError(f"{path} must hold one line, and is empty or damaged; start again with 'hocket up'")
        return text

    def _no_controller(self, where: str) -> ControllerAway:
        return ControllerAway(f"no controller answers at {where}; start one with 'hocket up'")
