"""Nothing is looked for until an epoch is named: a job that names none costs its sidecar next to nothing."""

from __future__ import annotations

from hocket.agent.progress.epochs import Epochs
from hocket.agent.progress.reader import Report
from hocket.agent.progress.stdout import Finder


class Guess(Finder):
    """Loads what knows how people print progress (`phrases.py`) when they do."""

    def __init__(self, epochs: Epochs, counter: str) -> None:
        super().__init__(epochs)
        self._counter = counter
        self._word = counter.encode()
        self._phrases: Finder | None = None

    def epoch_of(self, state: bytes) -> object:
        """As the phrases say."""
        phrases = self._phrases or self._awaken(state)
        return phrases.epoch_of(state) if phrases else None

    def read(self, text: bytes) -> list[Report]:
        """As the phrases say."""
        phrases = self._phrases or self._awaken(text)
        return phrases.read(text) if phrases else []

    def _awaken(self, text: bytes) -> Finder | None:
        if self._word in text.lower():
            from hocket.agent.progress.phrases import Phrases

            self._phrases = Phrases(self.epochs, self._counter)
        return self._phrases
