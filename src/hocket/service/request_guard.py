"""What every request must pass before it reaches the API: host, token, permission, length, a controller that is ready.

Plain ASGI: the middleware classes of the framework cost more than all the rest of a short request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hocket.service.connections import SCOPE
from hocket.service.host_names import HostNames
from hocket.service.page_sessions import PageSessions
from hocket.service.permissions import Permissions
from hocket.service.tokens import Role, Token, Tokens

_log = logging.getLogger("hocket.service")
LARGEST_BODY = 16 << 20
TOKEN = "hocket.token"  # where a request finds its caller's token
_CALL = "hocket.call"  # where it finds its method and its route, as that is declared
IS_VALID = "hocket.is_valid"  # and what says whether its session still is, if it has one
_ALWAYS = ("/v1/health", "/v1/down", "/")  # are answered while the controller starts
_ALWAYS_UNDER = ("/v1/agents/", "/page/")
_PROOF = b"x-hocket-proof"  # the header with a session's second half
_READS = ("GET", "HEAD")

Count = Callable[[str, int, float], None]  # a call as it is declared, its status, and how long it took


class RequestGuard:
    """Answers what must not reach the API; `is_ready` says whether users are served."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        permissions: Permissions,
        is_ready: Callable[[], bool],
        hosts: HostNames | None = None,
        sessions: PageSessions | None = None,
        count: Count = lambda _call, _status, _took_s: None,
    ) -> None:
        """Without `hosts`, a request may name any; without `sessions`, no cookie stands for a token.

        `count` is told of each request that is answered.
        """
        self._count = count
        self._app = app
        self._tokens, self._permissions, self._hosts = tokens, permissions, hosts
        self._is_ready = is_ready
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":  # There are none, and no rules for them.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, path = monotonic(), scope["path"]  # Routing may change the path in the scope.
        refusal = self._refusal(scope)
        call = scope.get(_CALL) or f"{scope['method']} {path}"

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                took_s = monotonic() - began_s
                self._count(call, message["status"], took_s)
                if refusal is None and _log.isEnabledFor(logging.DEBUG):
                    _log.debug("%s %s: %d in %.1f ms", scope["method"], path, message["status"], 1000 * took_s)
            await send(message)

        if refusal is not None:
            status, error = refusal
            answer = Response(msgspec.json.encode({"error": error}), status, media_type="application/json")
            await answer(scope, receive, note)
        else:
            await self._app(scope, receive, note)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and what is wrong with the request; None if it may pass."""
        path = scope["path"]
        shown, length, host, is_chunked = b"", b"0", b"", False
        cookies, proof = b"", b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                shown = shown or value
            elif name == b"content-length":
                length = value
            elif name == b"host":
                host = host or value
            elif name == b"transfer-encoding":
                is_chunked = True
            elif name == b"cookie":
                cookies = cookies + b";" + value if cookies else value
            elif name == _PROOF:
                proof = value
        if self._hosts is not None and host and (wrong := self._hosts.problem(host)):
            return 421, wrong
        token = self._tokens.find(shown[7:]) if shown.startswith(b"Bearer ") else None
        if not shown and proof and cookies and self._sessions is not None:
            if scope["method"] not in _READS and not is_same_origin(scope["headers"]):
                return 403, "a change by a browser must come from the controller's own page"
            token = self._sessions.find(cookies, proof)
            scope[IS_VALID] = partial(self._sessions.is_valid, cookies, proof)
        if token is not None and (connection := scope.get(SCOPE)) is not None:
            connection.proven()
        if (refusal := self._not_permitted(scope, token)) is not None:
            return refusal
        if not length.isdigit() or int(length) > LARGEST_BODY or is_chunked:
            return 413, f"a body must say its length, of {LARGEST_BODY} bytes at most"
        if not self._is_ready() and path not in _ALWAYS and not path.startswith(_ALWAYS_UNDER):
            return 503, "the controller is starting: the agent of its machine has not connected yet"
        scope[TOKEN] = token
        return None

    def _not_permitted(self, scope: Scope, token: Token | None) -> tuple[int, str] | None:
        call, roles = self._permissions.of(scope)
        scope[_CALL] = call
        role = None if token is None else token.role
        if role in roles:
            return None
        if token is None:
            return 401, "the token is missing or wrong, was revoked, or has expired (Authorization: Bearer …)"
        may = " or ".join(r for r in Role if r in roles) or "a permission, which is not declared"
        return 403, f"token '{token.name}' has the role {role}, and {call} needs {may}"


def is_same_origin(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Does a request come from a page of the host that it calls? Callers that are no browsers do not say an origin."""
    found = dict(headers)
    origin = found.get(b"origin")
    if origin is None:
        return found.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none")
    return origin.partition(b"://")[2] == found.get(b"host")
