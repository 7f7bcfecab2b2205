"""Ctrl-C that is not lost: Python ignores an exception in a destructor or a callback, KeyboardInterrupt included."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

_AGAIN_S = 0.02  # The destructor or callback has ended by then.


def keep_interrupts() -> None:
    """From now on an interrupt that Python has ignored comes again a moment later."""
    otherwise = sys.unraisablehook

    def hook(ignored: Any) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            again = threading.Timer(_AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            otherwise(ignored)

    sys.unraisablehook = hook
