"""What journals in databases have in common: numbered rows with checksums, and no append after a doubtful commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec

from hocket.control.journal.no_others import NoOthers
from hocket.control.ports import FORMAT, Cycle, Header, OtherControllers

Row = tuple[int, bytes, int | None]  # number, value, checksum; those of format 1 have none

PAGE = 256  # rows read at once, so that reading a long journal is not one long transaction
STATES = 2  # saved states that are kept: if one is damaged, there is another
CHECKSUMS = 2  # the first format with checksums; a controller appends only to this or later ones

# Not JSON, which has no NaN (a diverging job reports it). Maps keep their order, in which a plan is adopted.
ENCODER = msgspec.msgpack.Encoder()  # What it cannot encode cannot be stored.
_DECODER = msgspec.msgpack.Decoder(Cycle)


def checksum(number: int, value: bytes) -> int:
    """Checksum of a row. It includes the number, so that swapped rows are noticed."""
    return crc32(value, number & 0xFFFFFFFF)


class JournalError(ValueError):
    """A journal that cannot be read or written; the message names the store."""


class JournalHeld(JournalError):
    """Another controller appends to this journal; the message says which, and since when."""


class JournalLost(JournalError):
    """Another controller has taken the journal over, or its file is gone; nothing can be appended any more."""


def one_line(error: BaseException) -> str:
    """The text of a library's error, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


class StoredJournal(ABC):
    """One row per cycle, numbered from 1 without gaps. Open to read, or held to append.

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
        """The cycles that follow the first `number`, oldest first."""
        expected = number + 1
        while rows := self._page(expected):
            for found, value, check in rows:
                if found != expected:
                    raise JournalError(f"journal '{self.name}': {_missing(expected, found)}")
                yield self._cycle(found, value, check)
                expected += 1

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
    def close(self) -> None:
        """Close the store."""

    @abstractmethod
    def _commit(self, rows: list[Row]) -> None:
        """Write rows in one transaction, if the journal is still held by this process. Raises JournalError."""

    @abstractmethod
    def _commit_state(self, row: Row) -> None:
        """Write a state in one transaction, if this process still holds the journal, and drop old ones."""

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

    def _cycle(self, number: int, value: bytes, check: int | None) -> Cycle:
        try:
            if check is not None and checksum(number, value) != check:
                raise JournalError(f"journal '{self.name}', cycle {number}: it is damaged: its checksum is wrong")
            return _DECODER.decode(value)
        except (TypeError, msgspec.MsgspecError) as error:
            raise JournalError(f"journal '{self.name}', cycle {number}: {one_line(error)}") from error

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
