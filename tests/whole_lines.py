"""Files that another process may be writing just now: what is whole in them, and nothing else."""

import json
from pathlib import Path
from typing import Any


def whole_lines(path: Path) -> list[str]:
    """The lines that have their newline; none if there is no such file.

    A line that is written in one call is still seen in part for a moment, if it goes over the end of a page.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data[: data.rfind(b"\n") + 1].decode().split("\n")[:-1]


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The same, each an object in JSON."""
    return [json.loads(line) for line in whole_lines(path)]
