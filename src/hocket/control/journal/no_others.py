"""The other controllers of a journal that can have none: the lock on its file is of this machine."""

from __future__ import annotations


class NoOthers:
    """There is one controller, and the next one finds what it kept in the same home."""

    def unconfirmed_s(self) -> float:
        """It is always certain."""
        return 0.0

    def advertise(self, url: str, token: str) -> None:
        """Nothing asks for it."""

    def urls(self) -> tuple[str, ...]:
        """None that could take over."""
        return ()

    def share_notes(self, notes: str) -> None:
        """They are in the home."""

    def notes_before(self) -> str:
        """They are in the home."""
        return ""
