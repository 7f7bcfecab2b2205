"""Where this user's caches are."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """The folder of one of Hocket's caches, which need not be there; None: this user has no home."""
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "hocket" / name
    except RuntimeError:
        return None
