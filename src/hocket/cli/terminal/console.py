"""The terminal: tables on standard output, times of day, single keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 200  # of a file or pipe, which has no edge to wrap at


def console(to_stderr: bool = False) -> Console:
    """Standard output, or standard error, as wide as the terminal is."""
    from rich.console import Console

    found = Console(stderr=to_stderr)
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(stderr=to_stderr, width=_WIDE)


def clock(at_s: object) -> str:
    """`14:03:07`, or `2031-02-03 14:03:07` of another day; `–` for none."""
    import time

    if not isinstance(at_s, int | float) or isinstance(at_s, bool):
        return "–"
    then = time.localtime(at_s)
    is_today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", then)


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key: the key, or nothing. The terminal is restored at the end."""
    import select
    import time

    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([fd], [], [], seconds)
        return os.read(fd, 32).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(fd)
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
