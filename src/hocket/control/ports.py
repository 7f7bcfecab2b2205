"""What the controller needs of the world: an executor that makes actions true, a journal that forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from hocket.model.action import Action
from hocket.model.event import Event
from hocket.model.plan import Plan
from hocket.model.resources import Node

FORMAT = 1  # of journals and snapshots; a reader refuses what is newer than it knows


class Header(Struct, frozen=True):
    """What a journal starts with: enough to fold and to decide again."""

    policy: str
    params: dict[str, Any] = {}
    nodes: tuple[Node, ...] = ()
    seed: int = 0
    workload: str = ""
    format: int = FORMAT


class Cycle(Struct, frozen=True, gc=False):
    """One pass: what happened, and what of the plan changed. A plan refused by the check has its violations here."""

    at_s: float
    events: tuple[Event, ...]
    plan: Plan | None = None
    refused: tuple[str, ...] = ()


class Journal(Protocol):
    """Append-only. What `append` has returned from survives a kill."""

    header: Header

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle."""

    def __iter__(self) -> Iterator[Cycle]:
        """All cycles, oldest first."""


class Executor(Protocol):
    """Makes actions true and reports events."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Begin to make these true, in this order. An event tells when each is."""

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next moment and what happened then; nothing when `until_s` came first; None when nothing will come."""
