"""What changed, for everybody who listens; a listener that is too slow misses some."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Lock
from weakref import WeakSet

_WAITING = 10_000  # changes that a listener may be behind
_SIGN_OF_LIFE_S = 15.0


class Broadcast:
    """Job ids, from the controller's thread to those of the listeners."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: WeakSet[Queue[str]] = WeakSet()  # Who no longer listens has let go of its queue.

    def say(self, jobs: list[str]) -> None:
        """These jobs have changed."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            for job_id in jobs:
                try:
                    listener.put_nowait(job_id)
                except Full:
                    break

    def listen(self) -> Iterator[str]:
        """The ids of jobs as they change from now on, not only from the first `next`; an empty one now and then."""
        mine: Queue[str] = Queue(_WAITING)
        with self._lock:
            self._listeners.add(mine)
        return _heard(mine)


def _heard(mine: Queue[str]) -> Iterator[str]:
    while True:
        try:
            yield mine.get(timeout=_SIGN_OF_LIFE_S)
        except Empty:
            yield ""
