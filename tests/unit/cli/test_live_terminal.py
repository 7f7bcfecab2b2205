"""What a terminal sees of the live commands, and that it gets itself back."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from typing import Any

import pytest


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_leaves_with_a_key_and_the_terminal_is_as_it_was(controller: Any, key: bytes) -> None:
    controller.add("first", "running", gpus=["n0:1"])
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [sys.executable, "-m", "hocket", "top"], stdin=slave, stdout=slave, stderr=slave,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}, preexec_fn=lambda: _own_terminal(slave),
    )  # fmt: skip
    screen = b""
    while b"first" not in screen:
        screen += os.read(master, 65536)
    os.write(master, key)
    while b"\x1b[?1049l" not in screen:  # Back on the screen that was there before.
        screen += os.read(master, 65536)
    assert process.wait(timeout=120) == 0
    assert termios.tcgetattr(slave) == before
    os.close(slave)
    os.close(master)


def test_a_terminal_shows_fifty_jobs_and_says_how_many_more(controller: Any) -> None:
    for n in range(60):
        controller.add(f"j{n:02}")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hocket", "jobs"], stdin=slave, stdout=slave, stderr=slave,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
    )  # fmt: skip
    screen = b""
    while b"more (" not in screen:
        screen += os.read(master, 65536)
    assert process.wait(timeout=120) == 0
    assert "… and 10 more (--all-rows shows them)" in screen.decode()
    assert (b"j49" in screen, b"j50" in screen) == (True, False)
    os.close(slave)
    os.close(master)


def _own_terminal(slave: int) -> None:
    os.setsid()  # So that ^C, typed into the terminal, becomes an interrupt.
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
