"""Commands as users type them, in this process; and journals that were edited."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

from typer import testing
from typer.testing import CliRunner

from hocket.cli.main import app

if hasattr(testing, "_get_command"):
    # It builds all commands anew for each that is typed, which takes ten times as long as most of them.
    testing._get_command = cache(testing._get_command)


def hocket(*args: str, text: str | bytes | None = None, **env: str) -> Any:
    """What came of a command, with this on its standard input and in its environment."""
    return CliRunner().invoke(app, args, input=text, env={"COLUMNS": "160", **env})


def refused(*args: str, text: str | bytes | None = None) -> str:
    """The one line in which a command was refused."""
    result = hocket(*args, text=text)
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("hocket: ")
    assert result.stderr.count("\n") == 1
    return str(result.stderr)


def completed(*words: str) -> list[str]:
    """What a shell would offer for the last word."""
    line = " ".join(("hocket", *words))
    result = CliRunner().invoke(
        app, [], env={"_HOCKET_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    )
    return str(result.stdout).split()


def edit(path: Path, statement: str, *values: object) -> None:
    """Change a journal directly in its file."""
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()
