"""Connections to the API that say nothing, or too slowly, are closed, and never keep agents and users out.

With TLS, a connection counts from its beginning: the server takes it as it comes and begins the handshake itself.

A connection is *proven* once a request on it had the right token. Only so many others are kept: when one more comes,
the oldest of them is closed, unless it has only just been made. So a client that shows its token at once gets through,
whatever others do.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from ssl import SSLContext
from typing import Any

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log = logging.getLogger("hocket.service")
SCOPE = "hocket.connection"  # where a request finds its connection
_FILES = 65_536  # open files that a controller asks for; each connection is one
_SAID_EVERY_S = 60.0


class Limits(Struct, frozen=True):
    """What a connection may take."""

    header_s: float = 10.0  # from its beginning, or the first byte of its next request, to the end of the headers
    body_s: float = 30.0  # and the time for its bytes at the slowest rate
    slowest: float = 65_536.0  # bytes a second
    header_bytes: int = 65_536  # of a request's line and headers that are not complete
    unproven: int = 256  # connections without a token so far
    unproven_by_peer: int = 64  # from one address of another machine
    young_s: float = 1.0  # a connection is not closed for others before it could show its token
    total: int = 800  # connections in all; a tenth more for those of this machine


def raised_file_limit() -> tuple[int, int]:
    """Let this process open more files, as far as it may; the limit before, and now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft, soft
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return soft, wanted
    return soft, soft


class Connections:
    """All that are open now. For the thread of the event loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._all = 0
        self._unproven: dict[GuardedProtocol, tuple[str, float]] = {}  # the oldest first; its peer, and since when
        self._by_peer: Counter[str] = Counter()
        self._closed = 0  # since that was last said
        self._said_s = float("-inf")

    def admits(self, connection: GuardedProtocol, peer: str) -> bool:
        """A connection is made: whether there is room for it. The oldest that is not proven may have to go for it."""
        limits, now_s = self.limits, asyncio.get_running_loop().time()
        is_local = not peer or peer.startswith("127.") or peer == "::1"
        if self._all >= limits.total * (1.1 if is_local else 1.0):
            if not self._unproven:
                self._note("there are too many connections", now_s)
                return False
            self._drop(next(iter(self._unproven)), "there are too many connections", now_s)
        self._all += 1
        self._unproven[connection] = peer, now_s
        self._by_peer[peer] += 1
        if not is_local and self._by_peer[peer] > limits.unproven_by_peer:
            self._drop_oldest([c for c, (of, _) in self._unproven.items() if of == peer], "too many are of one address")
        elif len(self._unproven) > limits.unproven:
            self._drop_oldest(self._unproven, "too many have not shown a token")
        return True

    def proven(self, connection: GuardedProtocol) -> None:
        """A request on it had the token."""
        if (known := self._unproven.pop(connection, None)) is not None:
            peer, _ = known
            self._by_peer[peer] -= 1
            if not self._by_peer[peer]:
                del self._by_peer[peer]

    def lost(self, connection: GuardedProtocol) -> None:
        """It is closed."""
        self._all -= 1
        self.proven(connection)

    def breaks(self, connection: GuardedProtocol, why: str) -> None:
        """Close a connection that takes more than it may."""
        self._drop(connection, why, asyncio.get_running_loop().time())

    def _drop_oldest(self, connections: Iterable[GuardedProtocol], why: str) -> None:
        oldest, now_s = next(iter(connections)), asyncio.get_running_loop().time()
        if now_s - self._unproven[oldest][1] >= self.limits.young_s:
            self._drop(oldest, why, now_s)

    def _drop(self, connection: GuardedProtocol, why: str, now_s: float) -> None:
        self._note(why, now_s)
        self.proven(connection)
        connection.transport.abort()

    def _note(self, why: str, now_s: float) -> None:
        """Say it, but not for each of thousands."""
        self._closed += 1
        if now_s - self._said_s >= _SAID_EVERY_S:
            _log.warning("%d connections were closed: %s", self._closed, why)
            self._closed, self._said_s = 0, now_s


class _Part(Enum):
    """What of a request is coming."""

    NONE = auto()
    HEADER = auto()
    BODY = auto()


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits. A class of its own for each server, which `guarded` makes."""

    guard: Connections
    tls: SSLContext | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_admitted = False
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for = ""  # what the timer is for
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""  # what came with the end of the handshake
        self._part = _Part.NONE  # of a request that comes now
        self._header_bytes = 0  # so many of its line and headers came

    def proven(self) -> None:
        """The request that is being answered had the token."""
        self.guard.proven(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There is a new connection: closed at once, if there is no room for it."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self._is_admitted = self.guard.admits(self, peer[0] if isinstance(peer, tuple) else "")
        if not self._is_admitted:
            transport.abort()
        elif self.tls is None:
            self._begin(transport)
        else:
            transport.pause_reading()  # What comes is for the handshake.
            self._await("its handshake", self.guard.limits.header_s)
            self._handshake = self.loop.create_task(self._secured(transport, self.tls))

    async def _secured(self, transport: asyncio.Transport, tls: SSLContext) -> None:
        secure = None
        try:
            secure = await self.loop.start_tls(transport, self, tls, server_side=True)
        except OSError as error:  # The client speaks no TLS, or other versions of it.
            _log.debug("a TLS handshake failed: %s", error)
        if secure is None or not self._is_admitted:  # It is closed, by us or by the client.
            self._await("", 0.0)
            self._leave()
            return
        self._begin(secure)
        if self._early:
            self.data_received(self._early)

    def _begin(self, transport: asyncio.Transport) -> None:
        """Requests may come."""
        super().connection_made(transport)
        self._await("its header", self.guard.limits.header_s)

    def data_received(self, data: bytes) -> None:
        """Something came: what is awaited next?"""
        if self.flow is None:
            self._early += data
            return
        is_answered, was = self.cycle is None or self.cycle.response_complete, self.cycle
        super().data_received(data)
        limits = self.guard.limits
        if self._part is _Part.BODY:
            self._await("its body", limits.body_s + self._length() / limits.slowest)
        elif self._part is _Part.HEADER or (self.cycle is was and is_answered):  # Empty lines begin no request.
            self._header_bytes += len(data)
            if self._header_bytes > limits.header_bytes:
                self.guard.breaks(self, "its header was too long")
            else:
                self._await("its header", limits.header_s)
        else:
            self._await("", 0.0)

    def on_message_begin(self) -> None:
        """The first byte of a request is here."""
        super().on_message_begin()
        self.scope[SCOPE] = self  # type: ignore[literal-required]
        self._part = _Part.HEADER

    def on_headers_complete(self) -> None:
        """Its body may follow."""
        self._part, self._header_bytes = _Part.BODY, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it is here."""
        self._part = _Part.NONE
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by us or by the client."""
        self._await("", 0.0)
        self._leave()
        if self in self.connections:  # Else it was closed before it began.
            super().connection_lost(exc)

    def _leave(self) -> None:
        if self._is_admitted:
            self._is_admitted = False
            self.guard.lost(self)

    def _await(self, what: str, within_s: float) -> None:
        """Wait for this from now on; a timer that runs for the same goes on."""
        if what == self._waits_for:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits_for = what
        if what:
            self._timer = self.loop.call_later(within_s, self._is_late)

    def _is_late(self) -> None:
        if not self.transport.is_closing():
            self.guard.breaks(self, f"{self._waits_for} took too long")

    def _length(self) -> float:
        lengths = [value for name, value in self.headers or () if name == b"content-length"]
        with suppress(ValueError, IndexError):
            return min(float(int(lengths[0])), 1e9)
        return 0.0


def guarded(limits: Limits, tls: SSLContext | None = None) -> type[GuardedProtocol]:
    """The protocol for one server; with `tls`, every connection begins with a handshake."""
    return type("Guarded", (GuardedProtocol,), {"guard": Connections(limits), "tls": tls})
