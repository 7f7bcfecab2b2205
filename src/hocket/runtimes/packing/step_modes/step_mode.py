"""The interface of step modes, and the reference mode: one model after the other, each exactly as in a solo run."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import format_exception
from typing import Protocol

from hocket.runtimes.packing.member import Member


def without_frames(error: Exception) -> Exception:
    """The error with its traceback as text: frames would keep tensors, and so memory, alive."""
    error.add_note("".join(format_exception(error)))
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


class StepMode(Protocol):
    """Makes one step of each model. `release` undoes everything that it did to a model."""

    name: str
    joins_cheaply: bool  # A model that joins or leaves costs the others almost nothing.
    exact: bool  # Each model's numbers come from the same operations as alone, if the device repeats itself.

    def refuses(self, member: Member) -> str | None:
        """Why this model cannot be stepped in this mode; None if it can."""
        ...

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """One step of each, whose batches were taken; those that failed stand as if rolled back, with their errors."""
        ...

    def is_warm(self, members: Sequence[Member]) -> bool:
        """Whether the next step takes as long as all that follow: everything is captured and allocated."""
        ...

    def release(self, member: Member) -> None:
        """Undo all that the mode did to the model."""
        ...


class OneByOne:
    """One model after the other: the reference for all other modes, and their fallback."""

    name = "turn"
    joins_cheaply = True
    exact = True  # the same calls as alone

    def refuses(self, member: Member) -> str | None:  # noqa: ARG002
        """None: it can step every model."""
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """Each makes its step; one that fails is rolled back, without effect on the others."""
        failed: dict[str, Exception] = {}
        for member in members:
            member.begin_step()
            try:
                member.train()
            except Exception as error:  # any exception of a user's module
                member.roll_back()
                failed[member.name] = without_frames(error)
        return failed

    def is_warm(self, members: Sequence[Member]) -> bool:  # noqa: ARG002
        """At once."""
        return True

    def release(self, member: Member) -> None:
        """Nothing to undo."""
