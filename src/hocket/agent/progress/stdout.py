"""What a job prints: bytes in any pieces become lines, and the lines are read by what looks for progress in them."""

from __future__ import annotations

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.lines import Bars, Lines
from hocket.agent.progress.reader import Reader, Report

LONGEST_LINE = 4096  # bytes; what people print of an epoch is shorter


class Finder:
    """Finds progress in lines, and tells it to the epochs."""

    def __init__(self, epochs: EpochCounter) -> None:
        self.epochs = epochs

    def epoch_of(self, state: bytes) -> object:
        """Which epoch a state of a progress bar names; None if it names none."""
        raise NotImplementedError

    def read(self, text: bytes) -> list[Report]:
        """What whole lines report."""
        raise NotImplementedError


class Stdout(Reader):
    """Lines of the job's output, without colours and with progress bars in their last state."""

    def __init__(self, finder: Finder) -> None:
        super().__init__(finder.epochs)
        self._finder = finder
        self._lines = Lines(LONGEST_LINE, overwritten=True)
        self._bars = Bars(finder.epoch_of)

    def feed(self, data: bytes) -> list[Report]:
        """What lines were printed."""
        return self._read(self._lines.cut(data))

    def _rest(self) -> list[Report]:
        # The newline settles a progress bar that stands there still.
        return self._read(self._lines.rest() or b"\n")

    def _read(self, text: bytes) -> list[Report]:
        if not text:
            return []
        if b"\x1b" in text or b"\b" in text:
            text = _without_colours(text)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        return self._finder.read(self._bars.collapse(text))


class Guess(Finder):
    """Loads what knows how people print progress (`phrases.py`) when they do."""

    def __init__(self, epochs: EpochCounter, counter: str) -> None:
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


# Colours and cursor moves; titles and links. None reaches beyond its line.
_ESCAPE = rb"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]?|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])?|\x08"


def _without_colours(text: bytes) -> bytes:
    """The text without escape sequences and backspaces."""
    import re  # A job that prints none costs its sidecar no memory for it.

    return re.sub(_ESCAPE, b"", text)
