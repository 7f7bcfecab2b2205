"""What typer imports for help pages that we do not have is still there for those who use it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from hocket.cli.terminal.help_renderer import import_help_renderer

import_help_renderer()
assert not {"rich.markdown", "rich.traceback", "markdown_it"} & sys.modules.keys(), "imported too early"
from typer import rich_utils
page, trace = rich_utils.Markdown("# title"), rich_utils.Traceback.from_exception
from rich.markdown import Markdown
from rich.traceback import Traceback
assert isinstance(page, Markdown) and Markdown is not rich_utils.Markdown
assert trace == Traceback.from_exception
"""


def test_classes_that_help_pages_do_not_need_are_imported_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
