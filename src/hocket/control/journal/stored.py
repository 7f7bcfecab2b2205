"""What journals in databases have in common: numbered rows with checksums, and no append after a doubtful commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from zlib import crc32

import msgspec
from msgspec.structs import replace

from hocket.control.journal.no_others import NoOthers
from hocket.control.ports import FORMAT, Beginning, Cycle, Header, OtherControllers

Row = tuple[int, bytes, int | None]  # number, value, checksum; those of format 1 have none

PAGE = 256  # rows read at once, so that reading a long journal is not one long transaction
STATES = 2  # saved states that are kept: if one is damaged, there is another
CHECKSUMS = 2  # the first format with checksums; a controller appends only to this or later ones

# Not JSON, which has no NaN (a diverging job reports it). Maps keep their order, in which a plan is adopted.
ENCODER = msgspec.msgpack.Encoder()  # What it cannot encode cannot be stored.
_DECODER = msgspec.msgpack.Decoder(Cycle)
_BEGINNING = msgspec.msgpack.Decoder(Beginning)


def checksum(number: int, value: bytes) -> int:
    """Checksum of a row. It includes the number, so that swapped rows are noticed."""
    return crc32(value, number & 0xFFFFFFFF)


class JournalError(ValueError):
    """A journal that cannot be read or written; the message names the store."""


class JournalHeld(JournalError):
    """Another controller appends to this journal; the message says which, and since when."""


class JournalLost(JournalError):
    """Another controller has taken the journal over, or its file is gone; nothing can be appended any more."""


class JournalAway(JournalError):
    """Its database does not answer, or not now: it may later."""


def decoded_cycle(name: str, number: int, value: bytes, check: int | None) -> Cycle:
    """A cycle from its row; `name` is that of the journal or file. Raises JournalError."""
    try:
        if check is not None and checksum(number, value) != check:
            raise JournalError(f"journal '{name}', cycle {number}: it is damaged: its checksum is wrong")
        return _DECODER.decode(value)
    except (TypeError, msgspec.MsgspecError) as error:
        raise JournalError(f"journal '{name}', cycle {number}: {one_line(error)}") from error


def date_of(at_s: float) -> str:
    """A cycle's time as a date; simulated ones are in seconds."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC" if at_s > 1e8 else f"{at_s:g} s"


def one_line(error: BaseException) -> str:
    """The text of a library's error, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


class StoredJournal(ABC):
    """One row per cycle, numbered without gaps. Open to read, held to append, or open to remove old cycles.

    The first cycles may have been removed: then `beginning` has the state that the rest follows. Only the controller
    that holds it may remove cycles, or a process that was told the controller's epoch: when another controller has
    taken over, that process can change nothing any more.

    After a failed append the controller is ahead of its journal, and the last commit may be in doubt. So nothing is
    appended until `recover` has checked which cycles are stored; `restore` calls it, and rebuilds the controller.
    """

    header: Header
    name: str  # of the store, for error messages
    others: OtherControllers = NoOthers()
    lock_file: str = ""  # which every controller of it holds on its machine; empty: a database knows its holder

    def __init__(self, writes: bool) -> None:
        self._writes = writes
        self._last = 0  # number of the last cycle, for a writer
        self._in_doubt = False
        self._lost = ""  # why nothing can be appended ever again

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle; it is committed when this returns."""
        self.extend((cycle,))

    def extend(self, cycles: Sequence[Cycle]) -> None:
        """Keep several cycles in one transaction: all of them or none."""
        self._require_writable()
        if self._in_doubt:
            raise JournalError(f"journal '{self.name}': an append failed; nothing is appended before recover()")
        if not cycles:
            return
        self._in_doubt = True
        rows = [self._row(number, cycle) for number, cycle in enumerate(cycles, self._last + 1)]
        self._commit(rows)
        self._last += len(rows)
        self._in_doubt = False

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`, oldest first. Raises JournalError if they were removed."""
        for found, value, check in self.rows_after(number):
            yield decoded_cycle(self.name, found, value, check)

    def rows_after(self, number: int) -> Iterator[Row]:
        """The same as rows; their checksums are not compared."""
        if (begun := self.beginning()) is not None and number < begun.number:
            raise JournalError(
                f"journal '{self.name}' begins after cycle {begun.number:,}, of {date_of(begun.at_s)}: "
                f"earlier cycles were removed, so cycle {number + 1:,} cannot be read"
            )
        expected = number + 1
        while rows := self._page(expected):
            for row in rows:
                if row[0] != expected:
                    raise JournalError(f"journal '{self.name}': {_missing(expected, row[0])}")
                yield row
                expected += 1

    def beginning(self) -> Beginning | None:
        """Where it begins; None: with cycle 1. Raises JournalError."""
        row = self._beginning_row()
        if row is None:
            return None
        number, value, check = row
        try:
            if checksum(number, value) != check:
                raise JournalError(f"journal '{self.name}': its beginning, after cycle {number}, is damaged")
            return _BEGINNING.decode(value)
        except msgspec.MsgspecError as error:
            raise JournalError(f"journal '{self.name}': its beginning cannot be read: {one_line(error)}") from error

    def ended(self) -> Iterator[bytes]:
        """What is kept of the jobs that ended before its beginning, in blocks. Raises JournalError."""
        for number, value, check in self._ended_rows():
            if checksum(number, value) != check:
                raise JournalError(f"journal '{self.name}': block {number} of its ended jobs is damaged")
            yield value

    # -- removing old cycles ----------------------------------------------------------------------------------

    def begin_at(self, beginning: Beginning, ended: Sequence[bytes]) -> None:
        """Have it begin after a cycle; `ended` are further jobs that ended before. Their cycles are not read any more.

        It is one transaction: after a kill, the journal begins where it did, or here.
        """
        self._require_writable()
        if (begun := self.beginning()) is not None and begun.number >= beginning.number:
            raise JournalError(f"journal '{self.name}' begins after cycle {begun.number:,} already")
        value = ENCODER.encode(beginning)
        first = self._ended_blocks() + 1
        blocks: list[Row] = [(n, block, checksum(n, block)) for n, block in enumerate(ended, first)]
        header = msgspec.json.encode(replace(self.header, format=FORMAT))
        self._commit_beginning((beginning.number, value, checksum(beginning.number, value)), blocks, header)

    def remove(self, most: int) -> int:
        """Delete up to so many cycles before its beginning; gives how many it were."""
        self._require_writable()
        begun = self.beginning()
        return 0 if begun is None else self._delete(begun.number, most)

    @abstractmethod
    def shrink(self, most: int) -> int:
        """Give up to so many bytes that are not used any more back to the disk; gives how many it were."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes in use."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """By which a process that removes cycles says for which controller it does that."""

    def __iter__(self) -> Iterator[Cycle]:
        return self.after(0)

    def __len__(self) -> int:
        return self._last if self._writes and not self._in_doubt else self._newest()

    def recover(self) -> int:
        """After a failed append: find the last stored cycle and continue from it. Returns its number."""
        if not self._writes:
            return self._newest()
        self._require_writable()
        self._last = self._newest()
        self._in_doubt = False
        return self._last

    def save(self, state: bytes) -> None:
        """Save the state after the last cycle; older states are removed, cycles are not."""
        self._require_writable()
        self._commit_state((self._last, state, checksum(self._last, state)))

    def saved(self) -> Iterator[tuple[int, bytes]]:
        """The saved states that are undamaged, newest first, each with the number of its cycle."""
        if self.header.format < CHECKSUMS:
            return
        for number, value, check in self._states():
            if checksum(number, value) == check:
                yield number, value

    @property
    def lost(self) -> str:
        """Why nothing can be appended any more; empty as long as it can."""
        return self._lost

    @abstractmethod
    def keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        """Keep values beside the cycles by their keys, and remove those that are None: all in one transaction."""

    @abstractmethod
    def kept(self, kind: str, key: str | None = None) -> dict[str, bytes]:
        """The values of that kind by their keys, or the one with this key, if there is any."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    @abstractmethod
    def _commit(self, rows: list[Row]) -> None:
        """Write rows in one transaction, if the journal is still held by this process. Raises JournalError."""

    @abstractmethod
    def _commit_state(self, row: Row) -> None:
        """Write a state in one transaction, if this process still holds the journal, and drop old ones."""

    @abstractmethod
    def _commit_beginning(self, row: Row, blocks: list[Row], header: bytes) -> None:
        """Replace the beginning and the header, and add blocks of ended jobs, in one transaction."""

    @abstractmethod
    def _delete(self, last: int, most: int) -> int:
        """Delete the first `most` rows up to this number; gives how many it were."""

    @abstractmethod
    def _beginning_row(self) -> Row | None:
        """The row of the beginning, if there is one."""

    @abstractmethod
    def _ended_rows(self) -> Iterator[Row]:
        """The blocks of ended jobs, oldest first."""

    @abstractmethod
    def _ended_blocks(self) -> int:
        """The number of the last block of ended jobs, 0 if there is none."""

    @abstractmethod
    def _page(self, first: int) -> list[Row]:
        """Up to PAGE rows from this number on."""

    @abstractmethod
    def _newest(self) -> int:
        """The number of the last row, 0 if there is none."""

    @abstractmethod
    def _states(self) -> list[Row]:
        """The saved states, newest first; those that cannot be read are left out."""

    def _row(self, number: int, cycle: Cycle) -> Row:
        try:
            value = ENCODER.encode(cycle)
        except (TypeError, ValueError, OverflowError) as error:  # A policy may put anything into its memo.
            raise JournalError(f"journal '{self.name}' cannot keep cycle {number}: {one_line(error)}") from error
        return number, value, checksum(number, value)

    def _decoded_header(self, value: bytes) -> Header:
        try:
            header = msgspec.json.decode(value, type=Header)
        except (TypeError, msgspec.MsgspecError) as error:
            raise JournalError(f"journal '{self.name}' cannot be opened: {one_line(error)}") from error
        if header.format > FORMAT:
            raise JournalError(f"journal '{self.name}' has format {header.format}, this hocket reads up to {FORMAT}")
        if self._writes and header.format < CHECKSUMS:
            raise JournalError(
                f"journal '{self.name}' has format {header.format}, which can be read but not extended; use a new one"
            )
        return header

    def _require_writable(self) -> None:
        if self._lost:
            raise JournalLost(self._lost)
        if not self._writes:
            raise JournalError(f"journal '{self.name}' cannot be written: it is open for reading")

    def _lose(self, why: str) -> JournalLost:
        """Never append again."""
        self._lost = f"journal '{self.name}': {why}"
        return JournalLost(self._lost)


def _missing(first: int, found: int) -> str:
    last = found - 1
    return f"cycle {first} is missing" if first == last else f"cycles {first} to {last} are missing"
