"""Ctrl-C, heard between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_heard(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Within, the first Ctrl-C only asks to stop, and is in the list; the second is one. In the main thread only."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def heard(*_: object) -> None:
        came.append(1)
        stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
