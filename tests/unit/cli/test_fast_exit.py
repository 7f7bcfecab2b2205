"""The end of a process."""

import subprocess
import sys

MADE = """
from hocket.cli.terminal.fast_exit import keep, leave

class Made:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("taken apart:", self.name)

keep(Made("first"))
keep(Made("second"))
"""


def printed(*lines: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", "\n".join((MADE, *lines))], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_what_was_kept_last_is_not_taken_apart_once_the_process_leaves():
    assert printed("leave()") == ["taken apart: first"]


def test_a_process_that_only_ends_takes_it_apart_like_anything_else():
    assert printed() == ["taken apart: first", "taken apart: second"]
