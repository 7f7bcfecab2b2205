"""What changed, for everybody who listens; a listener that is too slow misses some."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Lock

_WAITING = 10_000  # changes that a listener may be behind
_SIGN_OF_LIFE_S = 15.0


class Broadcast:
    """Job ids, from the controller's thread to those of the listeners."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: list[Queue[str]] = []

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
        """The ids of jobs as they change, and an empty one now and then."""
        mine: Queue[str] = Queue(_WAITING)
        with self._lock:
            self._listeners.append(mine)
        try:
            while True:
                try:
                    yield mine.get(timeout=_SIGN_OF_LIFE_S)
                except Empty:
                    yield ""
        finally:
            with self._lock:
                self._listeners.remove(mine)
