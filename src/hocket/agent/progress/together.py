"""The reader that the user configured, and beside it the channel of `hocket.report`."""

from __future__ import annotations

from hocket.agent.progress.channel import Channel
from hocket.agent.progress.reader import Reader, Report


class Together(Reader):
    """Both count. But once a job reports by itself, what was only guessed from its output is left out."""

    def __init__(self, reader: Reader, channel: Channel, is_guess: bool) -> None:
        super().__init__()
        self._reader = reader
        self._channel = channel
        self._is_guess = is_guess
        self._has_reported = False

    @property
    def first_epoch(self) -> int | None:
        """That of whoever is heard."""
        return (self._channel if self._has_reported else self._reader).first_epoch

    def feed(self, data: bytes) -> list[Report]:
        """As the reader says, unless it is not heard any more."""
        return [] if self._has_reported and self._is_guess else self._reader.feed(data)

    def poll(self) -> list[Report]:
        """As both say."""
        return self._reader.poll() + self._noted(self._channel.poll())

    def env(self) -> dict[str, str]:
        """What both need."""
        return {**self._reader.env(), **self._channel.env()}

    def close(self, finished: bool = False) -> list[Report]:
        """Let go of both."""
        told = self._noted(self._channel.close(finished))
        read = self._reader.close(finished)
        return told if self._has_reported and self._is_guess else read + told

    def _noted(self, reports: list[Report]) -> list[Report]:
        self._has_reported = self._has_reported or bool(reports)
        return reports
