"""Which papers can be reproduced: the modules of this folder that have a `REPRODUCTION`."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches

from hocket.reproductions.reproduction import Reproduction


class UnknownReproduction(ValueError):
    """No paper goes by that name."""


def reproductions() -> dict[str, Reproduction]:
    """All there are, by name."""
    package = importlib.import_module("hocket.reproductions")
    modules = (importlib.import_module(m.name) for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))
    found = [m.REPRODUCTION for m in modules if hasattr(m, "REPRODUCTION")]
    return {r.name: r for r in sorted(found, key=lambda r: r.name)}


def find(name: str) -> Reproduction:
    """The paper of that name."""
    known = reproductions()
    if name not in known:
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"
        raise UnknownReproduction(f"paper '{name}' is unknown{hint}")
    return known[name]
