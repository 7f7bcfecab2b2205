"""What a job prints: bytes in any pieces become lines, and the lines are read by what looks for progress in them."""

from __future__ import annotations

from hocket.agent.progress.bars import Bars
from hocket.agent.progress.epochs import Epochs
from hocket.agent.progress.lines import Lines
from hocket.agent.progress.reader import Reader, Report

LONGEST_LINE = 4096  # bytes; what people print of an epoch is shorter


class Finder:
    """Finds progress in lines, and tells it to the epochs."""

    def __init__(self, epochs: Epochs) -> None:
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
            from hocket.agent.progress.colours import plain

            text = plain(text)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        return self._finder.read(self._bars.collapse(text))
