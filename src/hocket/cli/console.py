"""Where tables for people go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 200  # of a file or pipe, which has no edge to wrap at


def console() -> Console:
    """Standard output, as wide as the terminal is."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=_WIDE)
