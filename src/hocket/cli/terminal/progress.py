"""Progress on a terminal. It looks from outside, a few times a second: what it watches is not slowed down."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_EVERY_S = 0.25
_PATIENCE_S = 0.5  # before a bar appears: what is over sooner needs none


def bars(unit: str = "jobs") -> Progress:
    """Bars on stderr, where they do not mix with results; none where that is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        refresh_per_second=5,
    )


@contextmanager
def by_stage(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """One bar at a time, for work of several stages: call it with a stage, how much is done, and of how much."""
    with bars(unit) as progress:

        def show(stage: str, done: int, total: int) -> None:
            for task in progress.tasks:
                if task.description != stage:
                    progress.remove_task(task.id)
            if not progress.tasks:
                progress.add_task(stage)
            progress.update(progress.task_ids[0], completed=done, total=total)

        yield show


@contextmanager
def every(seconds: float, look: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again, in a thread of its own, and once more at the end."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def watching(what: str, total: int, count: Callable[[], int], unit: str = "jobs") -> Iterator[None]:
    """Show how far something is, if it takes a while and stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    progress = bars(unit)
    task = progress.add_task(what, total=total)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks * _EVERY_S >= _PATIENCE_S:
            progress.start()
            progress.update(task, completed=count())

    try:
        with every(_EVERY_S, look):
            yield
    finally:
        progress.stop()
