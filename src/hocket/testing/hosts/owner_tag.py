"""The name of all that one launcher makes, from which another can tell whether that launcher still runs."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from hocket.agent.process_tree import read

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PID_DIGITS, _BEGAN_DIGITS = 5, 6  # The names of links have 15 characters at most: this makes 12 of them.
_TAG = rf"h([0-9a-z]{{{_PID_DIGITS}}})([0-9a-z]{{{_BEGAN_DIGITS}}})"
_NAME = re.compile(rf"hocket-(?:hosts-)?{_TAG}(?:-n\d+)?")


class OwnerTag(NamedTuple):
    """A process, and when it began: its number may be given to another."""

    pid: int
    began: int  # ticks of the clock since the machine was started, as far as they fit into the name

    def __str__(self) -> str:
        return f"h{_written(self.pid, _PID_DIGITS)}{_written(self.began, _BEGAN_DIGITS)}"

    @property
    def name(self) -> str:
        """What its folder and namespaces are called, and begin with, and what its processes have in their environment.

        Links have room for the tag only; they have the name as their alias.
        """
        return f"hocket-hosts-{self}"

    @property
    def lives(self) -> bool:
        """Does that process still run?"""
        return _began(self.pid) == self.began


def own_tag() -> OwnerTag:
    """That of this process."""
    began = _began(os.getpid())
    assert began is not None
    return OwnerTag(os.getpid(), began)


def read_tag(text: str) -> OwnerTag | None:
    """The launcher that made what has this name; None if it is something else."""
    found = _NAME.fullmatch(text)
    return None if found is None else OwnerTag(int(found[1], 36), int(found[2], 36))


def _began(pid: int) -> int | None:
    line = (read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return int(line[19]) % 36**_BEGAN_DIGITS if line and line[0] not in b"ZX" else None


def _written(number: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text
