"""What an agent has to complain about itself: a line on stderr, if somebody can still take it."""

from __future__ import annotations

import sys
from contextlib import suppress


def complain(about: str) -> None:
    """Say it; a full disk behind stderr is no reason to stop."""
    with suppress(OSError, ValueError):
        print(f"agent: {about}", file=sys.stderr, flush=True)
