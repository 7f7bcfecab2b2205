"""What a terminal sees of the live commands, and that it gets itself back."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager
from select import select
from typing import Any

import pytest
from tests.children import child

PATIENCE_S = 120.0


class Terminal:
    """A screen and what is shown on it, and the end that programs have."""

    def __init__(self) -> None:
        self._master, self.end = pty.openpty()
        self.shown = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.end)
        os.close(self._master)

    def wait_for(self, text: bytes) -> None:
        while text not in self.shown:
            # The writer may have died; this process has the other end, so the terminal still exists.
            assert select([self._master], [], [], PATIENCE_S)[0], self.shown
            self.shown += os.read(self._master, 65536)

    def type(self, key: bytes) -> None:
        os.write(self._master, key)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal() as made:
        yield made


def hocket(terminal: Terminal, *args: str, **more: Any) -> AbstractContextManager[subprocess.Popen[bytes]]:
    env = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.end)
    return child([sys.executable, "-m", "hocket", *args], env=env, **streams, **more)


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_leaves_with_a_key_and_the_terminal_is_as_it_was(controller: Any, terminal: Terminal, key: bytes) -> None:
    controller.add("first", "running", gpus=["n0:1"])
    before = termios.tcgetattr(terminal.end)
    with hocket(terminal, "top", preexec_fn=lambda: _own_terminal(terminal.end)) as process:
        terminal.wait_for(b"first")
        terminal.type(key)
        terminal.wait_for(b"\x1b[?1049l")  # Back on the screen that was there before.
        assert process.wait(PATIENCE_S) == 0
    assert termios.tcgetattr(terminal.end) == before


def test_a_terminal_shows_fifty_jobs_and_says_how_many_more(controller: Any, terminal: Terminal) -> None:
    for n in range(60):
        controller.add(f"j{n:02}")
    with hocket(terminal, "jobs") as process:
        terminal.wait_for(b"more (--all-rows shows them)")
        assert process.wait(PATIENCE_S) == 0
    assert "… and 10 more (--all-rows shows them)" in terminal.shown.decode()
    assert (b"j49" in terminal.shown, b"j50" in terminal.shown) == (True, False)


def _own_terminal(slave: int) -> None:
    os.setsid()  # So that ^C, typed into the terminal, becomes an interrupt.
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
