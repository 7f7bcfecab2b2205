"""What changed, for all that listen; a listener that is too slow misses some."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from weakref import WeakSet

_WAITING = 10_000  # changes that a listener may be behind
_SIGN_OF_LIFE_S = 15.0
_STILL_HERE = b": still here\n\n"


class Broadcast:
    """From the controller's thread to listeners that all are in one event loop, where they take no thread."""

    def __init__(self, told: Callable[[str], bytes]) -> None:
        """`told` is what is said of a job that changed, if anything; called in the event loop, once for all."""
        self._told = told
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: WeakSet[_Listener] = WeakSet()  # One that no longer listens is let go of.

    def say(self, jobs: list[str]) -> None:
        """These jobs have changed. For any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is over, and so are all that listened.
                self._loop.call_soon_threadsafe(self._tell, jobs)

    def listen(self) -> AsyncIterator[bytes]:
        """What is said from now on, not only from the first `anext`; a sign of life now and then."""
        self._loop = asyncio.get_running_loop()
        mine = _Listener()
        self._listeners.add(mine)
        return mine

    def _tell(self, jobs: list[str]) -> None:
        listeners = list(self._listeners)
        said = [told for job_id in jobs if (told := self._told(job_id))] if listeners else []
        for listener in listeners if said else ():
            listener.hear(said)


class _Listener(AsyncIterator[bytes]):
    def __init__(self) -> None:
        self._behind: deque[bytes] = deque()
        self._came = asyncio.Event()

    def hear(self, said: list[bytes]) -> None:
        self._behind.extend(said[: _WAITING - len(self._behind)])
        self._came.set()

    async def __anext__(self) -> bytes:
        if not self._behind:
            self._came.clear()
            try:
                async with asyncio.timeout(_SIGN_OF_LIFE_S):
                    await self._came.wait()
            except TimeoutError:
                return _STILL_HERE
        said = b"".join(self._behind)
        self._behind.clear()
        return said
