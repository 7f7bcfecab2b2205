"""Who appends to a journal: for those who are refused because of it."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime

import msgspec
from msgspec import Struct


class Holder(Struct, frozen=True):
    """A process that took a journal to append to it."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"the controller with pid {self.pid} on host '{self.host}' since {self.since}"


def this_process() -> Holder:
    """This process, from now on."""
    return Holder(os.getpid(), socket.gethostname(), f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")


def encode(holder: Holder) -> bytes:
    """As it is kept beside the journal."""
    return msgspec.json.encode(holder)


def named(kept: bytes) -> str:
    """Whoever is kept there, in words; some process, when that cannot be read."""
    try:
        return str(msgspec.json.decode(kept, type=Holder))
    except msgspec.MsgspecError:
        return "another process that has not said who it is"  # It may just have begun.
