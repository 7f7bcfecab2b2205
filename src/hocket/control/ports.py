"""What the controller needs of the world: an executor that makes actions true, a journal that forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from hocket.model.action import Action
from hocket.model.event import Event
from hocket.model.plan import Plan
from hocket.model.resources import Node

FORMAT = 2  # of journals; a reader refuses what is newer than it knows. 1 had no checksums


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


class DurableJournal(Journal, Protocol):
    """A journal that outlives its controller, which goes on with it after a kill. Cycles are numbered from 1."""

    name: str  # as errors say it

    def extend(self, cycles: Sequence[Cycle]) -> None:
        """Keep several cycles, all or none."""

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`, oldest first."""

    def __len__(self) -> int:
        """The number of the last cycle."""

    def recover(self) -> int:
        """After an append that failed: see what is there, and go on from that. Gives the number of the last cycle."""

    def save(self, state: bytes) -> None:
        """Keep the state after the last cycle, so that a restore need not fold all that went before."""

    def saved(self) -> Iterator[tuple[int, bytes]]:
        """The states that are kept, newest first, each with the number of its cycle."""

    def close(self) -> None:
        """Let go of it."""


class Executor(Protocol):
    """Makes actions true and reports events."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Begin to make these true, in this order. An event tells when each is."""

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next moment and what happened then; nothing when `until_s` came first; None when nothing will come."""
