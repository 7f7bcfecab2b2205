"""The cycles that can be read of a journal, with those in its archives if they are asked for, and what they follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from hocket.control.journal.archive import (
    ArchiveFile,
    ArchiveReader,
    archive_files,
    archive_folder,
    continuous,
    is_archive,
)
from hocket.control.journal.open import open_to_read
from hocket.control.journal.stored import JournalError, StoredJournal, date_of
from hocket.control.ports import Beginning, Cycle, Header


class CycleHistory(Protocol):
    """Cycles one after the other, and the state that the first of them follows."""

    name: str  # of the journal or file, for messages
    header: Header
    beginning: Beginning | None  # None: they begin with cycle 1

    def __iter__(self) -> Iterator[Cycle]:
        """The cycles, oldest first. Raises JournalError."""

    def __len__(self) -> int:
        """How many they are."""

    def close(self) -> None:
        """Let go of it."""


def open_history(path: str | Path, archives: str | Path | None = None, *, everything: bool = False) -> CycleHistory:
    """A journal's history, by its file, or that in one archive. Raises JournalError.

    With `everything` it begins with the oldest archive in the folder `archives`, or in the one beside the journal.
    """
    if is_archive(path):
        return _ArchivedHistory(path)
    return _JournalHistory(path, archives, everything)


def first_cycle(history: CycleHistory) -> int:
    """The number of its first cycle."""
    return 1 if history.beginning is None else history.beginning.number + 1


def describe_beginning(history: CycleHistory) -> str:
    """In words, where it begins, if that is not the first cycle; else empty."""
    begun = history.beginning
    if begun is None:
        return ""
    said = f"the history begins at cycle {begun.number + 1:,}, on {date_of(begun.at_s)}"
    files = history.earlier if isinstance(history, _JournalHistory) else []
    return said + (f"; earlier cycles are in '{Path(files[-1].path).parent}' (--all reads them too)" if files else "")


class JournalWithArchives:
    """A journal to read with the cycles of its archives, as if those had not been removed from it."""

    def __init__(self, journal: StoredJournal, archives: Path | None) -> None:
        """`archives` is their folder; files that do not lead up to the journal are not read. Raises JournalError."""
        self._journal, self.name, self.header, self._folder = journal, journal.name, journal.header, archives
        begun = self._begun = journal.beginning()
        self.files = [] if begun is None or archives is None else continuous(archive_files(archives), begun.number)
        if self.files:
            self._begun = ArchiveReader(self.files[0].path).head.beginning

    def check(self) -> None:
        """Raises JournalError if cycles were removed from the journal and none of them are in its archives."""
        if self._begun is None or self.files:
            return
        lacks = "has no archive"
        if self._folder is not None:
            lacks = f"archive '{self._folder}' has no cycles that lead up to it"
        raise JournalError(f"journal '{self.name}' begins after cycle {self._begun.number:,}, and {lacks}")

    def beginning(self) -> Beginning | None:
        """The state that its first cycle follows; None: that is cycle 1."""
        return self._begun

    def ended(self) -> Iterator[bytes]:
        """What is kept of jobs that ended before the journal's own first cycle; some ended in the archives."""
        return iter(self._journal.ended())

    def __len__(self) -> int:
        return len(self._journal)

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`, which is that of the beginning or later. Raises JournalError."""
        for file in self.files:
            if file.last > number:
                for n, cycle in enumerate(ArchiveReader(file.path), file.first):
                    if n > number:
                        yield cycle
                number = file.last
        yield from self._journal.after(number)


class _ArchivedHistory:
    def __init__(self, path: str | Path) -> None:
        self._reader = ArchiveReader(path)
        self.name, self.header, self.beginning = str(path), self._reader.head.header, self._reader.head.beginning

    def __iter__(self) -> Iterator[Cycle]:
        return iter(self._reader)

    def __len__(self) -> int:
        (file,) = [f for f in archive_files(Path(self.name).parent) if Path(f.path).name == Path(self.name).name]
        return file.last - file.first + 1

    def close(self) -> None:
        """Nothing is open between two reads."""


class _JournalHistory:
    def __init__(self, path: str | Path, archives: str | Path | None, everything: bool) -> None:
        self._journal = open_to_read(path)
        self.name, self.header = self._journal.name, self._journal.header
        whole = JournalWithArchives(self._journal, Path(archives) if archives is not None else archive_folder(path))
        if everything:
            whole.check()
        self.earlier: list[ArchiveFile] = [] if everything else whole.files  # files with the cycles before it
        self._cycles = whole if everything else self._journal
        self.beginning = self._cycles.beginning()

    def __iter__(self) -> Iterator[Cycle]:
        return iter(self._cycles.after(self._before))

    def __len__(self) -> int:
        return len(self._journal) - self._before

    @property
    def _before(self) -> int:
        """The number of the last cycle before the first."""
        return 0 if self.beginning is None else self.beginning.number

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
