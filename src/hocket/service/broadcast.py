"""What changed, for all that listen; a listener that is too slow misses some, and is told so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakSet

_AT_ONCE = 100  # jobs that are told of before the event loop serves others again
_WAITING = 10_000  # changes that a listener may be behind
_SIGN_OF_LIFE_S = 15.0
_STILL_HERE = b": still here\n\n"
_MISSED = b"event: missed\ndata: {}\n\n"
T = TypeVar("T")  # what changes


class Broadcast(Generic[T]):
    """From the controller's thread to listeners that all are in one event loop, where they take no thread."""

    def __init__(self, told: Callable[[T], bytes]) -> None:
        """`told` is what is said of a job that changed, if anything; called in the event loop, once for all."""
        self._told = told
        self._untold: deque[T] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: WeakSet[_Listener[T]] = WeakSet()  # One that no longer listens is let go of.

    def say(self, jobs: list[T]) -> None:
        """These jobs have changed. For any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is over, and so are all that listened.
                self._loop.call_soon_threadsafe(self._take, self._loop, jobs)

    def listen(
        self, told: Callable[[T], bytes] | None = None, may_go_on: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """What is said from now on, not only from the first `anext`; a sign of life now and then.

        `told` is what this listener hears of a job, if not what all do. It ends when it may not go on.
        """
        self._loop = asyncio.get_running_loop()
        mine = _Listener(told, may_go_on)
        self._listeners.add(mine)
        return mine

    def _take(self, loop: asyncio.AbstractEventLoop, jobs: list[T]) -> None:
        is_telling = bool(self._untold)
        self._untold.extend(jobs)
        if not is_telling:
            self._tell(loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        listeners = list(self._listeners)
        if not listeners:
            self._untold.clear()
        some = [self._untold.popleft() for _ in range(min(_AT_ONCE, len(self._untold)))]
        said = _said(self._told, some)
        for listener in listeners if some else ():
            if said_here := said if listener.told is None else _said(listener.told, some):
                listener.hear(said_here)
        if self._untold:
            loop.call_soon(self._tell, loop)


def _said(told: Callable[[T], bytes], jobs: list[T]) -> list[bytes]:
    return [said for job in jobs if (said := told(job))]


class _Listener(AsyncIterator[bytes], Generic[T]):
    def __init__(self, told: Callable[[T], bytes] | None, may_go_on: Callable[[], bool]) -> None:
        self.told = told
        self._may_go_on = may_go_on
        self._behind: deque[bytes] = deque()
        self._came = asyncio.Event()
        self._has_missed = False

    def hear(self, said: list[bytes]) -> None:
        room = _WAITING - len(self._behind)
        self._behind.extend(said[:room])
        self._has_missed |= len(said) > room
        self._came.set()

    async def __anext__(self) -> bytes:
        if not self._behind:
            self._came.clear()
            try:
                async with asyncio.timeout(_SIGN_OF_LIFE_S):
                    await self._came.wait()
            except TimeoutError:
                pass
        if not self._may_go_on():
            raise StopAsyncIteration
        said = b"".join(self._behind) + (_MISSED if self._has_missed else b"")
        self._behind.clear()
        self._has_missed = False
        return said or _STILL_HERE
