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

    def reads_bars(self) -> bool:
        """Whether bars that name no epoch are read while they move: those of a job without epochs may count steps."""
        return False


class Stdout(Reader):
    """Lines of the job's output, without colours and with progress bars in their last state."""

    def __init__(self, finder: Finder) -> None:
        super().__init__(finder.epochs)
        self._finder = finder
        self._lines = Lines(LONGEST_LINE, overwritten=True)
        self._bars = Bars(finder.epoch_of, finder.reads_bars)

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


_COUNTS = (
    b"step", b"iter", b"%|", b"update", b"round", b"batch", b"]\t", b"] [", b"] loss", b"\tlearn:", b"train:",
    b"e    #",
)  # fmt: skip
_LOOKED_AT = 1 << 15  # bytes of output that are looked at as they come, for words of steps; that costs time, so later
_PIECES, _OF_A_PIECE = 16, 512  # only so many pieces are, together, and so many bytes of each


class Guess(Finder):
    """Loads what knows how people print progress (`phrases.py`) when they do."""

    def __init__(self, epochs: EpochCounter, counter: str) -> None:
        super().__init__(epochs)
        self._counter = counter
        self._word = counter.encode()
        self._phrases: Finder | None = None
        self._left = _LOOKED_AT
        self._has_metric = False
        self._recent: list[bytes] = []  # not looked at yet

    def reads_bars(self) -> bool:
        """Until an epoch is named."""
        return self._counter == "epoch" and self.epochs.current is None

    def epoch_of(self, state: bytes) -> object:
        """As the phrases say."""
        phrases = self._phrases or (self._awaken(state) if self._word in state.lower() else None)
        return phrases.epoch_of(state) if phrases else None

    def read(self, text: bytes) -> list[Report]:
        """As the phrases say."""
        phrases = self._phrases or self._awaken(text)
        return phrases.read(text) if phrases else []

    def _awaken(self, text: bytes) -> Finder | None:
        text = text.lower()
        if self._word not in text:
            if self._left <= 0:
                self._recent.append(text if len(text) < _OF_A_PIECE else text[-_OF_A_PIECE:])
                if len(self._recent) < _PIECES:
                    return None
                text = b"".join(self._recent)
                self._recent.clear()
            self._left -= len(text)
            if self._counter != "epoch" or not self._may_count_steps(text):
                return None
        from hocket.agent.progress.phrases import Phrases

        self._phrases = Phrases(self.epochs, self._counter)
        return self._phrases

    def _may_count_steps(self, text: bytes) -> bool:
        """Whether words for a metric and for a count were seen."""
        if b"." not in text and b"  " not in text:
            return False  # neither a value nor the header of a table
        self._has_metric = (
            self._has_metric
            or b"loss" in text or b"acc" in text or b"mse" in text or b"auc" in text or b"rew" in text
            or b"error" in text or b"score" in text or b"mae" in text or b"ppl" in text or b"map" in text
            or b"'s l" in text or b"learn:" in text
        )  # fmt: skip
        return self._has_metric and any(word in text for word in _COUNTS)


# Colours and cursor moves; titles and links. None reaches beyond its line.
_ESCAPE = rb"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]?|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])?|\x08"


def _without_colours(text: bytes) -> bytes:
    """The text without escape sequences and backspaces."""
    import re  # A job that prints none costs its sidecar no memory for it.

    return re.sub(_ESCAPE, b"", text)
