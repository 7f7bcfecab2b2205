"""How jobs on the same hosts take turns: one computes at a time, and one communicates before all others."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class CommTurn(Protocol):
    """A turn to communicate."""

    def between_chunks(self) -> None:
        """Call it between chunks of about 1 MB: a secondary turn waits here while the primary one communicates."""


class PhaseTurns(Protocol):
    """The turns of one job on one host; all its workers there share them."""

    def comp(self) -> AbstractContextManager[None]:
        """Hold the host's CPU token."""

    def comm(self) -> AbstractContextManager[CommTurn]:
        """Hold the host's primary or secondary network token."""

    def iteration_done(self, iteration: int, pull: float, comp: float, push: float) -> bool:
        """Tell what an iteration took, in seconds; True: leave the group at this boundary."""


class _AlwaysFirst:
    def between_chunks(self) -> None:
        pass


class NoTurns:
    """A job that has its hosts to itself."""

    _comp = nullcontext()
    _comm: AbstractContextManager[CommTurn] = nullcontext(_AlwaysFirst())

    def comp(self) -> AbstractContextManager[None]:
        """Begin at once."""
        return self._comp

    def comm(self) -> AbstractContextManager[CommTurn]:
        """Begin at once, as primary."""
        return self._comm

    def iteration_done(self, iteration: int, pull: float, comp: float, push: float) -> bool:  # noqa: ARG002
        """There is no group to leave."""
        return False
