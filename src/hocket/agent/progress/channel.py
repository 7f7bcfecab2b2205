"""The reading end of `hocket.report`: a FIFO whose path the job finds in its environment.

A line is a count and `name=value`s, with tabs between; the step is `@step=value`, which no metric can be called, and
the count is `-` if only that is known. The job's processes write lines of at most PIPE_BUF bytes, which the kernel does
not mix, and drop them when nothing has read for a while.
"""

from __future__ import annotations

import os
import stat

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.lines import Lines
from hocket.agent.progress.metrics import MOST_METRICS, STEP, metric_name, number
from hocket.agent.progress.reader import Reader, Report

VARIABLE = "HOCKET_REPORT"
LONGEST_LINE = 1 << 12
_MOST_READS = 16  # in one poll


class Channel(Reader):
    """Makes the FIFO, and takes it away again."""

    def __init__(self, epochs: EpochCounter, path: str) -> None:
        """Without a path, the FIFO stands in a folder of its own among the temporary files."""
        super().__init__(epochs)
        self._count = epochs
        self._lines = Lines(LONGEST_LINE)
        self._folder = "" if path else _make_folder()
        self._path = path or os.path.join(self._folder, "report")
        _make_fifo(self._path)
        # For writing too: so it never ends, however many writers come and go.
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def poll(self) -> list[Report]:
        """What the job's processes have written."""
        reports: list[Report] = []
        for _read in range(_MOST_READS):
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            for line in self._lines.cut(data).decode("utf-8", "replace").split("\n"):
                reports += self._line(line)
        return reports

    def env(self) -> dict[str, str]:
        """Where they find the FIFO."""
        return {VARIABLE: self._path}

    def _rest(self) -> list[Report]:
        if self._fd < 0:
            return []
        reports = self.poll()
        os.close(self._fd)
        self._fd = -1
        _remove(self._path, self._folder)
        return reports

    def _line(self, line: str) -> list[Report]:
        first, *pairs = line.split("\t")
        count = number(first)
        step: float | None = None
        metrics: dict[str, float] = {}
        for pair in pairs[: MOST_METRICS + 1]:
            name, _equals, text = pair.rpartition("=")
            value = number(text)
            if name == STEP:
                step = value
            elif value is not None and (known_as := metric_name(name)):
                metrics[known_as] = value
        reports = [] if count is None else self._count.said(count, metrics)
        return reports if step is None else reports + self._count.at_step(step, metrics, alone=count is None)


def _make_folder() -> str:
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"hocket-{os.urandom(8).hex()}")
    os.mkdir(folder, 0o700)
    return folder


def _make_fifo(path: str) -> None:
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        # An earlier attempt's, with what that one left unread.
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            raise
        os.unlink(path)
        os.mkfifo(path, 0o600)


def _remove(path: str, folder: str) -> None:
    try:
        os.unlink(path)
        if folder:
            os.rmdir(folder)
    except OSError:
        pass  # Another process was quicker.


class Together(Reader):
    """Both count. But once a job reports by itself, what was only guessed from its output is left out."""

    def __init__(self, reader: Reader, channel: Channel, is_guess: bool) -> None:
        super().__init__()
        self._reader = reader
        self._channel = channel
        self._is_guess = is_guess
        self._has_reported = False

    @property
    def is_counted(self) -> bool:
        """Whether one of them has named an epoch or a step."""
        return self._reader.is_counted or self._channel.is_counted

    @property
    def names(self) -> set[str]:
        """The metrics of both."""
        return self._reader.names | self._channel.names

    @property
    def first_epoch(self) -> int | None:
        """That of the sender that is heard."""
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
