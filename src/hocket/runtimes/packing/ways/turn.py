"""In turn: one model after the other, each exactly as it would be trained alone."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.ways.way import without_frames


class Turn:
    """The reference for all other ways, and what they fall back to."""

    name = "turn"
    light = True
    exact = True  # the same calls as alone

    def refuses(self, member: Member) -> str | None:  # noqa: ARG002
        """Nobody."""
        return None

    def step(self, members: Sequence[Member]) -> dict[str, Exception]:
        """Each makes its step; one that fails is rolled back and harms nobody."""
        failed: dict[str, Exception] = {}
        for member in members:
            member.mark()
            try:
                member.train()
            except Exception as error:  # whatever a user's module may raise
                member.roll_back()
                failed[member.name] = without_frames(error)
        return failed

    def settled(self, members: Sequence[Member]) -> bool:  # noqa: ARG002
        """At once."""
        return True

    def release(self, member: Member) -> None:
        """Nothing was done to it."""
