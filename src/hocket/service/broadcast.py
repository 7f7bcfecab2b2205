"""Sends changes to all listeners; one that is too slow misses some, and gets a message that says so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakSet

_AT_ONCE = 100  # jobs that are sent before the event loop serves other calls again
_WAITING = 10_000  # changes that a listener may have left to read
_KEEP_ALIVE_S = 15.0
_KEEP_ALIVE = b": still here\n\n"
_MISSED = b"event: missed\ndata: {}\n\n"
T = TypeVar("T")  # what changes


class Broadcast(Generic[T]):
    """From the controller's thread to listeners that all are in one event loop, where they take no thread."""

    def __init__(self, encode: Callable[[T], bytes]) -> None:
        """`encode` makes the message about a job that changed, empty for none; it is called once for all listeners."""
        self._encode = encode
        self._unsent: deque[T] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: WeakSet[_Listener[T]] = WeakSet()  # weak: one that no longer listens is dropped

    def publish(self, jobs: list[T]) -> None:
        """Send these jobs, which have changed, to all listeners. For any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and all listeners with it.
                self._loop.call_soon_threadsafe(self._take, self._loop, jobs)

    def listen(
        self, encode: Callable[[T], bytes] | None = None, may_go_on: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """All messages from now on, not only from the first `anext`, and an empty one now and then to keep it alive.

        `encode` makes this listener's messages, if they differ from those of all. It ends when it `may_go_on` no more.
        """
        self._loop = asyncio.get_running_loop()
        mine = _Listener(encode, may_go_on)
        self._listeners.add(mine)
        return mine

    def _take(self, loop: asyncio.AbstractEventLoop, jobs: list[T]) -> None:
        is_sending = bool(self._unsent)
        self._unsent.extend(jobs)
        if not is_sending:
            self._send(loop)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        listeners = list(self._listeners)
        if not listeners:
            self._unsent.clear()
        some = [self._unsent.popleft() for _ in range(min(_AT_ONCE, len(self._unsent)))]
        messages = _messages(self._encode, some)
        for listener in listeners if some else ():
            if own := messages if listener.encode is None else _messages(listener.encode, some):
                listener.add(own)
        if self._unsent:
            loop.call_soon(self._send, loop)


def _messages(encode: Callable[[T], bytes], jobs: list[T]) -> list[bytes]:
    return [message for job in jobs if (message := encode(job))]


class _Listener(AsyncIterator[bytes], Generic[T]):
    def __init__(self, encode: Callable[[T], bytes] | None, may_go_on: Callable[[], bool]) -> None:
        self.encode = encode
        self._may_go_on = may_go_on
        self._unread: deque[bytes] = deque()
        self._has_messages = asyncio.Event()
        self._has_missed = False

    def add(self, messages: list[bytes]) -> None:
        room = _WAITING - len(self._unread)
        self._unread.extend(messages[:room])
        self._has_missed |= len(messages) > room
        self._has_messages.set()

    async def __anext__(self) -> bytes:
        if not self._unread:
            self._has_messages.clear()
            try:
                async with asyncio.timeout(_KEEP_ALIVE_S):
                    await self._has_messages.wait()
            except TimeoutError:
                pass
        if not self._may_go_on():
            raise StopAsyncIteration
        joined = b"".join(self._unread) + (_MISSED if self._has_missed else b"")
        self._unread.clear()
        self._has_missed = False
        return joined or _KEEP_ALIVE
