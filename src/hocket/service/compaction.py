"""Removes old cycles from a journal: what later ones need of them is kept, and the cycles go to an archive if wanted.

It works in stages. Each folds some cycles from where the journal begins, writes them to an archive file, and then has
the journal begin after them, in one transaction; only then they are deleted. So after a kill nothing is lost: the
journal begins before or after the stage, and cycles that are left are deleted by the next compaction. It writes little
at a time and rests in between, so that the controller, which goes on meanwhile, never waits for long.

A controller runs this as a process of its own (`retention.py`), which has the controller's epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from math import inf
from pathlib import Path
from time import perf_counter, sleep

import msgspec
from msgspec import Struct

from hocket.control.journal import JournalError, open_to_remove
from hocket.control.journal.archive import ArchiveFile, ArchiveReader, ArchiveWriter, archive_files
from hocket.control.journal.stored import StoredJournal, decoded_cycle
from hocket.control.ports import Cycle
from hocket.service.history_fold import HistoryFold
from hocket.service.kept_jobs import BLOCK, encode_block
from hocket.service.record import Record

STAGE_CYCLES = 200_000  # in one stage at most, and so in one archive file
STAGE_BYTES = 256 << 20
LEAST_CYCLES = 1000  # that are always kept
_SLACK = 0.1  # of what is kept: nothing is removed before there is so much more
_FULL = 0.8  # of the size that is allowed: to be reached when there is too much
_SLICE_S = 0.01  # how long one write should take at most
_REST = 3.0  # times as long as a write took, before the next


class Keep(Struct, frozen=True):
    """How much of its cycles a journal keeps."""

    history_s: float = 0.0  # cycles that are younger; 0: all
    size: int = 0  # bytes at most, as `StoredJournal.size` counts them; 0: any
    archive: str = ""  # folder for what is removed; empty: it is deleted


EVERYTHING = Keep()


class Compacted(Struct, frozen=True):
    """What a compaction did."""

    cycles: int = 0  # removed
    jobs: int = 0  # that had ended in them
    begins: int = 0  # the journal begins after this cycle now
    bytes_before: int = 0
    bytes_after: int = 0
    archives: tuple[str, ...] = ()  # files that were written
    longest_s: float = 0.0  # the longest time for which the journal was locked


def removable(journal: StoredJournal, keep: Keep, now_s: float, slack: float = _SLACK) -> int:
    """The number of the last cycle that may be removed; 0 if there is too little to remove."""
    begun = journal.beginning()
    first, last = (0 if begun is None else begun.number), len(journal)
    limit = last - LEAST_CYCLES
    if limit <= first:
        return 0
    found = 0
    if keep.history_s and _time_of(journal, first + 1) < now_s - keep.history_s * (1 + slack):
        found = _last_before(journal, now_s - keep.history_s, first, limit)
    if keep.size and (size := journal.size) > keep.size:
        # Cycles are taken to be of the same size; if too few are removed, the rest is the next time.
        found = max(found, first + int((last - first) * (1 - _FULL * keep.size / size)))
    return min(found, limit) if found > first else 0


def compact(
    journal: StoredJournal,
    until: int,
    archive: str = "",
    rest: Callable[[float], None] = sleep,
    say: Callable[[str], None] = lambda _what: None,
    stage_cycles: int = STAGE_CYCLES,
) -> Compacted:
    """Remove the cycles up to this number, and what an interrupted compaction left. Raises JournalError.

    `rest` is called after each write with how long to wait before the next, `say` with what is being done.
    """
    before = journal.size
    slices = _Slices(rest)
    begun = journal.beginning()
    first = 0 if begun is None else begun.number
    if archive:
        _set_aside_leftovers(journal, Path(archive), first)
    _remove(journal, slices)
    jobs, files = 0, []
    at = first
    while at < until:
        stage = _Stage(journal, archive)
        at, ended, path = stage.run(min(until, at + stage_cycles), slices, say)
        jobs += ended
        files += [str(path)] if path is not None else []
        _remove(journal, slices)
    return Compacted(max(0, at - first), jobs, at, before, journal.size, tuple(files), slices.longest_s)


class _Slices:
    """Writes little at a time: the amount follows from how long the last ones took."""

    def __init__(self, rest: Callable[[float], None]) -> None:
        self._rest = rest
        self.longest_s = 0.0

    def once(self, write: Callable[[], None]) -> None:
        """One write that cannot be divided."""
        began = perf_counter()
        write()
        self._note(perf_counter() - began)

    def until_done(self, write: Callable[[int], int], amount: int, most: int) -> None:
        """Call it with an amount to write, until there is nothing more."""
        while True:
            began = perf_counter()
            if not write(amount):
                return
            took_s = perf_counter() - began
            self._note(took_s)
            if took_s < _SLICE_S / 2:
                amount = min(most, amount * 2)
            elif took_s > _SLICE_S:
                amount = max(1, amount // 2)

    def _note(self, took_s: float) -> None:
        self.longest_s = max(self.longest_s, took_s)
        self._rest(took_s * _REST)


class _Stage:
    """Folds some cycles from the journal's beginning on."""

    def __init__(self, journal: StoredJournal, archive: str) -> None:
        self._journal, self._archive = journal, archive
        self._begun = journal.beginning()
        self._fold = HistoryFold(journal.header, journal.name, self._begun)

    def run(self, until: int, slices: _Slices, say: Callable[[str], None]) -> tuple[int, int, Path | None]:
        """Fold up to this cycle, or to one before if there is much in them, and have the journal begin there.

        Gives that cycle, how many jobs had ended before, and the archive file.
        """
        number = 0 if self._begun is None else self._begun.number
        blocks: list[bytes] = []
        ended: list[Record] = []
        jobs = size = 0
        writer: ArchiveWriter | None = None
        path: Path | None = None
        try:
            for row in self._journal.rows_after(number):
                number, value, check = row
                cycle = decoded_cycle(self._journal.name, number, value, check)
                if self._archive:
                    writer = writer or self._writer(number, cycle)
                    writer.add(row)
                self._fold.fold(number, cycle)
                size += len(value)
                if number % 1000 == 0:
                    say(f"cycle {number:,} of {until:,}")
                    ended += self._fold.catalogue.take_ended()
                    while len(ended) >= BLOCK:
                        blocks.append(encode_block(ended[:BLOCK]))
                        jobs, ended = jobs + BLOCK, ended[BLOCK:]
                if number >= until or size >= STAGE_BYTES:
                    break
            ended += self._fold.catalogue.take_ended()
            if ended:
                blocks.append(encode_block(ended))
            if writer is not None:
                path = writer.finish(number)
        finally:
            if writer is not None and path is None:
                writer.drop()
        beginning = self._fold.beginning()
        slices.once(lambda: self._journal.begin_at(beginning, blocks))
        return number, jobs + len(ended), path

    def _writer(self, number: int, cycle: Cycle) -> ArchiveWriter:
        return ArchiveWriter(Path(self._archive), self._journal.header, self._begun, number, cycle.at_s)


def _remove(journal: StoredJournal, slices: _Slices) -> None:
    """Delete the cycles before its beginning, and give the room back."""
    slices.until_done(journal.remove, 200, 2000)
    slices.until_done(journal.shrink, 1 << 18, 4 << 20)


def _set_aside_leftovers(journal: StoredJournal, folder: Path, begins: int) -> None:
    """Remove archive files whose cycles are still in the journal: a compaction was interrupted before it ended.

    If other cycles are in the journal, an older copy of it was restored: the file is kept under another name, since
    nothing else knows of its cycles.
    """
    for file in archive_files(folder):
        if file.last > begins:
            if _is_in(journal, file):
                Path(file.path).unlink(missing_ok=True)
            else:
                Path(file.path).rename(f"{file.path}.replaced")
    for part in folder.glob("cycles-*.part") if folder.is_dir() else ():
        part.unlink(missing_ok=True)


def _is_in(journal: StoredJournal, file: ArchiveFile) -> bool:
    """Has the journal the very cycles of an archive file?"""
    try:
        for archived, row in zip(ArchiveReader(file.path).rows(), journal.rows_after(file.first - 1), strict=False):
            if archived != row:
                return False
    except JournalError:
        return False
    return file.last <= len(journal)


def last_time(journal: StoredJournal) -> float:
    """The time of its last cycle."""
    return _time_of(journal, len(journal))


def _time_of(journal: StoredJournal, number: int) -> float:
    for cycle in journal.after(number - 1):
        return cycle.at_s
    return inf


def _last_before(journal: StoredJournal, at_s: float, low: int, high: int) -> int:
    """The last cycle before that time, between these."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _time_of(journal, middle) < at_s else (low, middle - 1)
    return low


class CompactionRequest(Struct, frozen=True):
    """What the process is told, on its standard input: a store's URL may have a password."""

    store: str
    epoch: int
    keep: Keep
    now_s: float
    stage_cycles: int = STAGE_CYCLES


def main() -> None:
    """Compact a journal for the controller that holds it; says what was done in one line of JSON."""
    import os

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=CompactionRequest)
    os.nice(10)
    os.umask(0o077)
    try:
        with closing(open_to_remove(request.store, request.epoch)) as journal:
            until = removable(journal, request.keep, request.now_s)
            done = compact(journal, until, request.keep.archive, stage_cycles=request.stage_cycles)
    except JournalError as error:
        raise SystemExit(str(error)) from error
    print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    main()
