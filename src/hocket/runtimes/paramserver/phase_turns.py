"""How jobs on the same hosts take turns: one computes at a time, and one communicates before all others."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

_clock_s = time.perf_counter


class CommTurn(Protocol):
    """A turn to communicate."""

    def between_chunks(self) -> None:
        """Call it between chunks of about 1 MB: a secondary turn waits here while the primary one communicates."""


class CommOrder(NamedTuple):
    """Which of two COMMs on the same host goes first: the one that has its token for longer."""

    since_ns: int = 0  # by the clock of its job's first host
    gives_way: bool = False  # to one that goes first


class TokenTurn(CommTurn, Protocol):
    """A turn with a token."""

    @property
    def order(self) -> CommOrder:
        """Before which others it goes."""


class PhaseTurns(Protocol):
    """The turns of one job on one host; all its workers there share them."""

    def comp(self) -> AbstractContextManager[None]:
        """Hold the host's CPU token."""

    def comm(self) -> AbstractContextManager[TokenTurn]:
        """Hold the primary or secondary network token of the job's first host, for all its hosts."""

    def follow_comm(self, order: CommOrder) -> AbstractContextManager[CommTurn]:
        """On another host: go first or give way as on the first, which has the token."""

    def iteration_done(
        self, iteration: int, pull: float, comp: float, push: float, sending: float | None, meeting: float
    ) -> bool:
        """Tell what an iteration took, in seconds; True: leave the group at this boundary.

        `sending` is for how long the host had something on its way to others meanwhile; None: that is not known.
        `meeting` is what it took hosts to go on from where all had come to; on hosts other than the first it is 0.
        """


class TimedTurn:
    """A turn to communicate, and how long it waited for a job that goes first."""

    def __init__(self, turn: CommTurn) -> None:
        self._turn, self.waited_s = turn, 0.0
        self._began_s = _clock_s()

    def between_chunks(self) -> None:
        """Call the turn's own, and measure how long it took."""
        began_s = _clock_s()
        self._turn.between_chunks()
        self.waited_s += _clock_s() - began_s

    def took_s(self) -> float:
        """Since it began, without waiting."""
        return _clock_s() - self._began_s - self.waited_s


class _AlwaysFirst:
    order = CommOrder()

    def between_chunks(self) -> None:
        pass


class NoTurns:
    """A job that has its hosts to itself."""

    _comp = nullcontext()
    _comm: AbstractContextManager[TokenTurn] = nullcontext(_AlwaysFirst())

    def comp(self) -> AbstractContextManager[None]:
        """Begin at once."""
        return self._comp

    def comm(self) -> AbstractContextManager[TokenTurn]:
        """Begin at once, as primary."""
        return self._comm

    def follow_comm(self, order: CommOrder) -> AbstractContextManager[CommTurn]:  # noqa: ARG002
        """Likewise."""
        return self._comm

    def iteration_done(
        self, iteration: int, pull: float, comp: float, push: float, sending: float | None, meeting: float  # noqa: ARG002
    ) -> bool:  # fmt: skip
        """There is no group to leave."""
        return False
