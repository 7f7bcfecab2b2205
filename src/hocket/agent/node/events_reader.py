"""Reads a run's `events.jsonl` as the agent needs it: from where the controller is, a part at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

_BLOCK = 1 << 17  # What a long silence of the controller leaves in the file stays there.
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode
_ENDS = ("exited", "cannot-start")


def facts(path: str, offset: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole facts from a byte on, each with the byte after it; lines that are none are passed over."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        begun = b""
        while block := os.pread(fd, _BLOCK, offset + len(begun)):
            *lines, rest = (begun + block).split(b"\n")
            for line in lines:
                offset += len(line) + 1
                fact = _fact(line)
                if fact is not None:
                    yield fact, offset
            begun = rest
    finally:
        os.close(fd)


def _fact(line: bytes) -> dict[str, Any] | None:
    try:
        fact = _DECODE(line)
    except msgspec.DecodeError:
        fact = _odd(line)
    whole = isinstance(fact.get("n"), int) and isinstance(fact.get("at"), int | float)
    return fact if whole and isinstance(fact.get("event"), str) else None


def _odd(line: bytes) -> dict[str, Any]:
    """A line that is not quite JSON: a loss may be NaN or infinite, as Python's own reader and writer have it."""
    try:
        fact = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fact if isinstance(fact, dict) else {}


class Story(Struct, frozen=True):
    """A run in short."""

    begun: bool = False  # There is at least one event.
    started: bool = False
    ended: bool = False  # and its sidecar says so
    cannot: bool = False  # be started
    pids: tuple[int, ...] = ()  # of the sessions that ever were


def story(path: str) -> Story:
    """All that a run's events come to."""
    begun = started = ended = cannot = False
    pids: dict[int, None] = {}
    for fact, _ in facts(path, 0):
        begun = True
        started = started or fact["event"] == "started"
        ended = ended or fact["event"] in _ENDS
        cannot = cannot or fact["event"] == "cannot-start"
        pids.update(dict.fromkeys(p for p in fact.get("pids") or () if isinstance(p, int)))
    return Story(begun, started, ended, cannot, tuple(pids))
