"""What the README shows under a command is what the command prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PURE = ("simulate", "compare", "replay", "whatif", "policies", "decide")  # the same on every machine, but for times
TIMED = ("decisions ", "cost ")  # rows that tell how long it took here


def samples() -> list[tuple[str, list[str]]]:
    """Each command of the README with the lines shown under it, in order."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:].split("  #")[0], []))
            else:
                found[-1][1].append(line)
    return found


def is_pure(command: str) -> bool:
    """Does it start nothing, and need no data from elsewhere?"""
    return re.search(rf"\bhocket ({'|'.join(PURE)})\b", command) is not None and "$HOCKET_DATA" not in command


def test_what_the_readme_shows_is_what_is_printed(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    compared, stale = 0, list[str]()
    for command, shown in samples():
        if command.startswith("cat "):
            (tmp_path / command.split()[1]).write_text("\n".join(shown) + "\n")
        if not is_pure(command):
            continue
        ran = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = [line.strip() for line in ran.stdout.splitlines()]
        for line in (line.strip() for line in shown):
            if line and line != "…" and not line.startswith(TIMED):
                compared += 1
                if not any(p.endswith(line) for p in printed):  # Paths are shown from the repository's root.
                    stale.append(f"`{command}` does not print {line!r} but\n{ran.stdout}")
    assert not stale, "\n".join(stale)
    assert compared > 50, "the README's samples were not found"
