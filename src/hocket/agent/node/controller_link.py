"""The calls to the controller: one connection a thread, kept open, and every way in which a call may fail."""

from __future__ import annotations

import http.client
import logging
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from hocket.agent.address import connection
from hocket.agent.lease_file import boot_s
from hocket.agent.node.controllers import Controllers
from hocket.agent.protocol import Hello, Welcome

_log = logging.getLogger("hocket.agent")
_CALL_S = 30.0  # for an answer to come
_CONNECT_S = 5.0
_FIRST_S, _LONGEST_S = 0.05, 1.0  # between attempts
_LATER = (408, 425, 429)  # and all from 500 on: not our fault, and it may pass


class Away(Exception):
    """The controller does not answer, or cannot do it now: try again later."""


class Gone(Exception):
    """The controller does not know the session: say hello again."""


class CallRefused(Exception):
    """The controller will never take this; the message says what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Credentials(NamedTuple):
    """What proves that we may call, and what proves that it is the controller."""

    token_file: str
    ca: str = ""  # a file of certificates; empty for those that the system trusts

    def token(self) -> str:
        """As it is now: a controller that was set up anew has another."""
        try:
            with open(self.token_file, encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError) as error:
            raise CallRefused(401, f"token file '{self.token_file}' cannot be read: {error}") from error


class Link:
    """Calls of one thread, to the controller that leads."""

    def __init__(self, controllers: Controllers, credentials: Credentials) -> None:
        self._controllers, self._credentials = controllers, credentials
        self._token = credentials.token()
        self._open_to(controllers.url)
        controllers.when_changed.append(self._hang_up)

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        within_s: float = _CALL_S,
    ) -> bytes:
        """The body of the answer; or Away, Gone, CallRefused."""
        status, answer = self._ask(method, path, body, headers or {}, within_s)
        if status == 401 and self._credentials.token() != self._token:
            self._token = self._credentials.token()
            status, answer = self._ask(method, path, body, headers or {}, within_s)
        if 200 <= status < 300:
            return answer
        said = f"controller at {self._url} answers {status}: {_error(answer)}"
        if status == 401:
            said = f"controller at {self._url} does not take the token in '{self._credentials.token_file}'"
        if status == 410:
            raise Gone(said)
        if status >= 500 or status in _LATER:
            raise Away(said)
        raise CallRefused(status, said)

    def own_address(self) -> str:
        """The address of this machine that the controller sees."""
        try:
            name = self._connected().sock.getsockname()
            return str(name[0]) if isinstance(name, tuple) else "127.0.0.1"  # Over a Unix socket we are where it is.
        except OSError as error:
            self._connection.close()
            raise Away(f"controller at {self._url} is away: {error}") from error

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _open_to(self, url: str) -> None:
        self._url = url
        self._connection = connection(url, _CONNECT_S, self._credentials.ca)
        self._path = urlsplit(url).path.rstrip("/") if url.startswith("http") else ""

    def _connected(self) -> http.client.HTTPConnection:
        """The connection to the controller that leads now."""
        if self._url != self._controllers.url:
            self._connection.close()
            self._open_to(self._controllers.url)
        if self._connection.sock is None:
            self._connection.connect()
        return self._connection

    def _hang_up(self) -> None:
        """From another thread: a call that waits for its answer fails now."""
        with suppress(OSError, AttributeError):  # It may be closed just now.
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str], within_s: float) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers}
        while True:
            kept_open = self._connection.sock is not None
            try:
                link = self._connected()
                link.sock.settimeout(within_s)
                link.request(method, self._path + path, body or None, headers)
                answer = link.getresponse()
                return answer.status, answer.read()
            except (http.client.RemoteDisconnected, ConnectionError) as error:
                self._connection.close()
                if not kept_open:
                    raise Away(f"controller at {self._url} is away: {error}") from error
                # It closed an idle connection, as servers do. All that we say may be said twice.
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise Away(f"controller at {self._url} is away: {error or type(error).__name__}") from error


class Session:
    """Our place at the controller, shared by all threads; the thread that finds it gone says hello."""

    def __init__(self, hello: Callable[[Link], Hello]) -> None:
        self._hello = hello
        self._carrying = threading.Lock()  # held while an order is carried out, and while hello is said: never both
        self._lock = threading.Lock()  # taken after the other
        self._welcome: Welcome | None = None
        self._settled = ""  # the session whose first orders are carried out
        self.said_s = 0.0  # when hello was said last, by `boot_s`

    def joined(self, link: Link) -> Welcome:
        """The session, a new one if there is none; or Away, CallRefused."""
        if (welcome := self._welcome) is not None:  # Without a lock: an order that is carried out may take long.
            return welcome
        with self._carrying, self._lock:
            if self._welcome is None:
                self.said_s = boot_s()
                answer = link.call("POST", "/v1/agents/hello", msgspec.json.encode(self._hello(link)))
                try:
                    self._welcome = msgspec.json.decode(answer, type=Welcome)
                except msgspec.DecodeError as error:
                    raise CallRefused(200, f"what answers to hello is no controller of Hocket: {error}") from error
                _log.info("connected to the controller, with a lease of %g s", self._welcome.lease_s)
            return self._welcome

    def carry_out(self, session: str, call: Callable[[], None]) -> bool:
        """Do what was ordered in this session; False if that is gone. What hello tells is true before it or after it,
        so that nothing begins of which the controller does not learn."""
        with self._carrying:
            with self._lock:
                if self._welcome is None or self._welcome.session != session:
                    return False
            call()
            return True

    def settle(self, session: str) -> None:
        """The orders that waited when this session began are carried out: what runs here is what should."""
        with self._lock:
            self._settled = session

    def is_settled(self, session: str) -> bool:
        """Whether what runs here is what the controller wants."""
        with self._lock:
            return self._settled == session

    def is_gone(self, session: str) -> None:
        """The controller does not know it."""
        with self._lock:
            if self._welcome is not None and self._welcome.session == session:
                _log.warning("the controller does not know this session: saying hello again")
                self._welcome = None

    def leave(self) -> None:
        """Another controller leads."""
        with self._lock:
            self._welcome = None


class Patience:
    """How long to wait before the next attempt: longer each time, and never so that all agents come at once."""

    def __init__(self) -> None:
        self._wait_s = _FIRST_S
        self._trouble = ""

    def is_news(self, trouble: Exception) -> bool:
        """Whether it failed in another way than the last time."""
        return str(trouble) != self._trouble

    def wait_s(self, trouble: Exception) -> float:
        """It failed once more."""
        if self.is_news(trouble):
            self._trouble = str(trouble)
            _log.warning("%s; trying again", self._trouble)
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, _LONGEST_S)
        return wait_s * random.uniform(0.7, 1.0)

    def reset(self) -> None:
        """It went well."""
        if self._trouble:
            _log.info("the controller answers again")
        self._wait_s, self._trouble = _FIRST_S, ""


def _error(answer: bytes) -> str:
    try:
        return str(msgspec.json.decode(answer)["error"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer[:200].decode(errors="replace").strip() or "nothing"
