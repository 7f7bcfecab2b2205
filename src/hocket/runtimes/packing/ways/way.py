"""What a way of running a pack is."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import format_exception
from typing import Protocol

from hocket.runtimes.packing.member import Member


def without_frames(error: Exception) -> Exception:
    """An error with its story as text: frames would hold tensors, and keep their memory from those who need it."""
    error.add_note("".join(format_exception(error)))
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


class Way(Protocol):
    """Makes one step of each model. All that it does to a model is undone by `release`."""

    name: str
    light: bool  # Who enters or leaves costs the others next to nothing.
    exact: bool  # Each model's numbers come from the same operations as alone, if the device repeats itself.

    def refuses(self, member: Member) -> str | None:
        """Why this model cannot be run this way; None if it can."""
        ...

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """One step of each, whose batches were taken; those that failed stand as if rolled back, with their errors."""
        ...

    def settled(self, members: Sequence[Member]) -> bool:
        """Whether the next step is one as all that follow, and not one that only leads there."""
        ...

    def release(self, member: Member) -> None:
        """The model leaves this way, and is an ordinary one again."""
        ...
