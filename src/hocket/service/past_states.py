"""The cluster, the queue and the jobs as they were after any cycle of a journal.

`_IndexBuilder` folds the cycles once, in order, and stores states on the way (`history_index.py`). To look at a cycle,
the last state before it is taken and the few cycles from there on are folded. Memory holds two states, however long
the journal is.
"""

from __future__ import annotations

import gc
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path

from msgspec import Struct

from hocket.control.journal import JournalError, open_to_read
from hocket.control.journal.archive import ArchiveFile, ArchiveReader, archive_files, continuous
from hocket.control.journal.stored import Row, date_of, decoded_cycle
from hocket.control.ports import Beginning, Cycle
from hocket.model.snapshot import Snapshot
from hocket.service.history_fold import HistoryFold
from hocket.service.history_index import MOST_CHANGES, HistoryIndex, IndexTroubleError, Segment
from hocket.service.kept_jobs import decode_block, encode_block
from hocket.service.record import Record

_SEGMENT = 2000  # cycles and events in a segment, at least
# A state may take as much room as so many times the cycles since the last one: so the index is never much larger than
# the journal, however many jobs are live.
_ROOM = 2.0


class NotKept(LookupError):
    """A cycle or time that there is nothing of; says which there is."""


class Bucket(Struct, frozen=True):
    """The cycles of a span of time."""

    from_s: float
    cycles: int
    decisions: int  # that changed something
    last: int  # the last cycle up to its end


class PastState(Struct, frozen=True):
    """How things stood after a cycle."""

    number: int
    cycle: Cycle
    before: Snapshot  # before it
    fold: HistoryFold  # after it; it moves on when another is asked for


class PastStates:
    """Reads a journal by a connection of its own, whether a controller holds it or not. For one thread."""

    def __init__(self, store: str | Path, archives: Path | None = None, index: Path | None = None) -> None:
        """`archives` is the folder of cycles that were removed. Without a path for the index, it is kept in memory.

        Raises JournalError and IndexTroubleError.
        """
        self._journal = open_to_read(store)
        self._archives = archives
        try:
            self._index = HistoryIndex(index)
        except BaseException:
            self._journal.close()
            raise
        self.header = self._journal.header
        if not self._is_of_this_journal():
            self._index.clear()
        self._builder = self._resumed_builder()
        self._view: HistoryFold | None = None
        self._seen: PastState | None = None  # the last that was asked for

    def close(self) -> None:
        """Let go of the journal."""
        self._index.close()
        self._journal.close()

    # -- the index ----------------------------------------------------------------------------------------------

    def index_further(self, most: int) -> int:
        """Fold up to so many further cycles of the journal; gives how many it were. Raises JournalError."""
        begun, _ = self._beginnings()
        if (
            begun is not None
            and self._builder.fold.number < begun.number
            and not self._has_archived(self._builder.fold)
        ):
            self._index.clear()  # What it would continue from was removed.
            self._builder = self._resumed_builder()
        count = 0
        for number, value, check in islice(self._rows_after(self._builder.fold.number), most):
            cycle = decoded_cycle(self._journal.name, number, value, check)
            self._builder.add(number, cycle, len(value), check)
            count += 1
            if self._builder.is_full:
                self._builder.store(self._index)
        return count

    def index_again(self) -> None:
        """Forget the index, which is damaged, and begin anew. Raises JournalError and IndexTroubleError."""
        self._index.clear()
        self._builder, self._view, self._seen = self._resumed_builder(), None, None

    @property
    def indexed(self) -> int:
        """The last cycle up to which all are indexed."""
        return self._builder.fold.number

    @property
    def indexed_until_s(self) -> float:
        """The time of that cycle."""
        return self._builder.fold.at_s

    @property
    def last(self) -> int:
        """The last cycle of the journal."""
        return len(self._journal)

    @property
    def first(self) -> int:
        """The first cycle that can be looked at."""
        begun, files = self._beginnings()
        return 1 if begun is None else files[0].first if files else begun.number + 1

    def forget(self) -> None:
        """Forget what is not kept in the journal or an archive any more."""
        self._index.forget(self.first)

    # -- positions ----------------------------------------------------------------------------------------------

    def cycle_at(self, time_s: float) -> int:
        """The last cycle at that time or before, of those that are indexed. Raises NotKept."""
        number = self._builder.cycle_at(time_s)
        if number is None:
            for segment in reversed(self._index.segments):
                if segment.from_s <= time_s:
                    times, _ = self._index.columns(segment.last)
                    number = segment.first + bisect_right(times, time_s) - 1
                    break
        if number is None or number < (first := self.first):
            raise NotKept(f"nothing is kept of {date_of(time_s)}: {self._range()}")
        return max(number, first)

    def decision_before(self, number: int) -> int | None:
        """The last cycle before that one whose decision changed something; None if there is none."""
        for segment in reversed(self._segments()):
            if segment.decisions and segment.first < number:
                _, changes = self._columns_of(segment)
                for n in range(min(number - segment.first, len(changes)) - 1, -1, -1):
                    if changes[n]:
                        return segment.first + n if segment.first + n >= self.first else None
        return None

    def decision_after(self, number: int) -> int | None:
        """The first cycle after that one whose decision changed something; None if there is none so far."""
        for segment in self._segments():
            if segment.decisions and segment.last > number:
                _, changes = self._columns_of(segment)
                for n in range(max(0, number + 1 - segment.first), len(changes)):
                    if changes[n]:
                        return segment.first + n
        return None

    def density(self, buckets: int, since_s: float = -inf, until_s: float = inf) -> list[Bucket]:
        """How many cycles and decisions there were in each of so many equal spans of time."""
        known = [s for s in self._segments() if s.last >= self.first]
        if not known:
            return []
        since_s, until_s = max(since_s, known[0].from_s), min(until_s, known[-1].until_s)
        if since_s > until_s:
            return []
        width_s = (until_s - since_s) / buckets or 1.0
        edges = [since_s + width_s * n for n in range(buckets)]
        cycles, decisions, last = [0] * buckets, [0] * buckets, [0] * buckets
        for segment in known:
            if segment.until_s < since_s or segment.from_s > until_s:
                continue
            of = bisect_right(edges, segment.from_s) - 1
            is_whole = since_s <= segment.from_s and segment.until_s <= until_s
            if is_whole and of == bisect_right(edges, segment.until_s) - 1:  # All of it is in one bucket.
                cycles[of] += segment.last - segment.first + 1
                decisions[of] += segment.decisions
                last[of] = segment.last
                continue
            times, changes = self._columns_of(segment)
            place, end = bisect_left(times, since_s), bisect_right(times, until_s)
            while place < end:  # bucket by bucket
                of = bisect_right(edges, times[place]) - 1
                after = end if of + 1 == buckets else min(end, bisect_left(times, edges[of + 1], place))
                cycles[of] += after - place
                decisions[of] += after - place - changes[place:after].count(0)
                last[of] = segment.first + after - 1
                place = after
        before = 0
        if not last[0]:
            with suppress(NotKept):
                before = self.cycle_at(since_s)
        for n in range(buckets):
            last[n] = before = last[n] or before
        return [Bucket(*row) for row in zip(edges, cycles, decisions, last, strict=True)]

    # -- states -------------------------------------------------------------------------------------------------

    def at(self, number: int) -> PastState:
        """How things stood after that cycle. Raises NotKept and JournalError."""
        if not self.first <= number <= self.last:
            raise NotKept(f"nothing is kept of cycle {number:,}: {self._range()}")
        if self._seen is not None and self._seen.number == number:
            return self._seen
        self._seen = None
        fold = self._before(number)
        for found, value, check in self._rows_after(fold.number):
            cycle = decoded_cycle(self._journal.name, found, value, check)
            before = fold.controller.snapshot if found == number else None
            fold.fold(found, cycle)
            if before is not None:
                self._view = fold
                self._seen = PastState(number, cycle, before, fold)
                return self._seen
        raise NotKept(f"nothing is kept of cycle {number:,}: {self._range()}")

    def ended(self, past: PastState, limit: int) -> list[Record]:
        """The jobs that had ended by then, the last so many, in the order of submission."""
        records = past.fold.catalogue.records
        found = {r.number: r for r in records.values() if r.ended_s is not None}
        name = self._journal.name
        for block in self._index.ended(past.number):
            if len(found) >= limit:
                break
            found |= {record.number: record for record in decode_block(name, block)}
        else:
            for block in reversed(list(self._journal.ended())):
                if len(found) >= limit:
                    break
                for record in decode_block(name, block):
                    if record.ended_s is not None and record.ended_s <= past.cycle.at_s:
                        found.setdefault(record.number, record)
        live = {record.number for record in records.values() if record.ended_s is None}
        by_end = sorted((found[n] for n in found.keys() - live), key=lambda record: record.ended_s or 0.0)
        return sorted(by_end[max(0, len(by_end) - limit) :], key=lambda record: record.number)

    def _before(self, number: int) -> HistoryFold:
        """A fold at some cycle before that one: the one that is there, or from the last state that is kept."""
        state = self._last_state(number - 1)
        known = 0 if state is None else state.last if isinstance(state, Segment) else state.number
        view = self._view
        self._view = None  # An error on the way leaves no fold that is in the middle of something.
        if view is not None and known <= view.number < number:
            return view
        view = None  # Its memory is needed for the next one.
        return self._fold_from(self._index.state(state.last) if isinstance(state, Segment) else state)

    def _last_state(self, until: int) -> Segment | Beginning | None:
        """The last state after a cycle up to this one; None is that before cycle 1."""
        segments = self._index.segments
        place = bisect_right(segments, until, key=lambda segment: segment.last)
        segment = segments[place - 1] if place else None
        begun, files = self._beginnings()
        found: Beginning | None = None
        if begun is not None and begun.number <= until:
            found = begun
        elif begun is not None:
            file = next((file for file in files if file.first <= until + 1 <= file.last), None)
            found = ArchiveReader(file.path).head.beginning if file is not None else None
        if segment is None or (found is not None and found.number > segment.last):
            return found
        return segment

    # -- cycles -------------------------------------------------------------------------------------------------

    def _beginnings(self) -> tuple[Beginning | None, list[ArchiveFile]]:
        """Where the journal begins, and the archives that lead up to there."""
        begun = self._journal.beginning()
        if begun is None or self._archives is None:
            return begun, []
        return begun, continuous(archive_files(self._archives), begun.number)

    def _rows_after(self, number: int) -> Iterator[Row]:
        begun, files = self._beginnings()
        if begun is not None and number < begun.number:
            for file in files:
                if file.last > number:
                    for row in ArchiveReader(file.path).rows():
                        if row[0] > number:
                            yield row
                    number = file.last
        yield from self._journal.rows_after(number)

    def _has_archived(self, fold: HistoryFold) -> bool:
        _, files = self._beginnings()
        return any(file.first <= fold.number + 1 <= file.last for file in files)

    def _range(self) -> str:
        first, last = self.first, self.last
        if not last:
            return "there is no cycle yet"
        row = next(self._rows_after(first - 1))
        since = date_of(decoded_cycle(self._journal.name, *row).at_s)
        why = "" if first == 1 else "; earlier ones were removed from the journal and its archive"
        return f"the history has cycles {first:,} to {last:,}, the first of {since}{why}"

    def _is_of_this_journal(self) -> bool:
        """Has the journal the very cycle with which the index ends?"""
        if not (segments := self._index.segments):
            return True
        newest = segments[-1]
        if newest.last > len(self._journal):
            return False
        try:
            row = next(self._rows_after(newest.last - 1), None)
        except JournalError:
            return False
        return row is not None and row[0] == newest.last and row[2] == newest.crc

    def _resumed_builder(self) -> _IndexBuilder:
        """A builder that goes on after the last segment, or begins at the oldest cycle that there is."""
        if segments := self._index.segments:
            try:
                state = self._index.state(segments[-1].last)
            except IndexTroubleError:  # It is damaged.
                self._index.clear()
                return self._resumed_builder()
            return _IndexBuilder(self._fold_from(state), len(state.state) + len(state.jobs))
        begun, files = self._beginnings()
        return _IndexBuilder(self._fold_from(ArchiveReader(files[0].path).head.beginning if files else begun), 0)

    def _fold_from(self, state: Beginning | None) -> HistoryFold:
        was_enabled = gc.isenabled()
        gc.disable()  # All that is made stays: looking for garbage in it would take half as long again.
        try:
            return HistoryFold(self.header, self._journal.name, state)
        finally:
            if was_enabled:
                gc.enable()

    # -- columns ------------------------------------------------------------------------------------------------

    def _segments(self) -> list[Segment]:
        """All segments, and the part of the next that is there."""
        tail = self._builder.segment()
        return [*self._index.segments, *([tail] if tail is not None else [])]

    def _columns_of(self, segment: Segment) -> tuple[array[float], array[int]]:
        if segment.first == self._builder.first:
            return self._builder.times, self._builder.changes
        return self._index.columns(segment.last)


class _IndexBuilder:
    """Folds cycles for the index, and keeps what it has of the next segment."""

    def __init__(self, fold: HistoryFold, room: int) -> None:
        """`room` is the size of the last state that was stored."""
        self.fold = fold
        self._room = room
        self._begin()

    def _begin(self) -> None:
        self.first = self.fold.number + 1
        self.times, self.changes = array("d"), array("H")
        self._weight = self._size = 0
        self._crc: int | None = None

    def add(self, number: int, cycle: Cycle, size: int, crc: int | None) -> None:
        self.fold.fold(number, cycle)
        self.times.append(cycle.at_s)
        self.changes.append(_changes(cycle))
        self._weight += 1 + len(cycle.events)
        self._size += size
        self._crc = crc

    @property
    def is_full(self) -> bool:
        return self._weight >= _SEGMENT and self._size * _ROOM >= self._room

    def segment(self) -> Segment | None:
        """What was gathered, as a segment that is not stored yet; None if there is nothing."""
        if not self.times:
            return None
        decisions = len(self.changes) - self.changes.count(0)
        return Segment(self.first, self.fold.number, self.times[0], self.times[-1], decisions, self._crc)

    def store(self, index: HistoryIndex) -> None:
        """Make a segment of it."""
        segment = self.segment()
        assert segment is not None
        ended = [record for record in self.fold.catalogue.records.values() if record.ended_s is not None]
        state = self.fold.beginning()
        index.add(segment, self.times, self.changes, encode_block(ended) if ended else b"", state)
        self.fold.catalogue.take_ended()  # Only now: if it was not stored, it is tried again.
        self._room = len(state.state) + len(state.jobs)
        self._begin()

    def cycle_at(self, time_s: float) -> int | None:
        """The last cycle at that time or before; None if that is before all of these."""
        place = bisect_right(self.times, time_s)
        return self.first + place - 1 if place else None


def _changes(cycle: Cycle) -> int:
    """How much a decision changed; a refused one counts, for users look for it."""
    plan = cycle.plan
    if plan is None:
        return 0
    count = 1 if cycle.refused else len(plan.put) + len(plan.drop) + len(plan.ends)
    return min(count, MOST_CHANGES)
