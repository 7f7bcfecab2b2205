"""The blocks of an input file, each made when it is asked for, so that no more are in memory than a host keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from hocket.runtimes.paramserver.algorithm import DataBlock
from hocket.runtimes.paramserver.column_spool import ColumnSpool

_CHUNK_BYTES = 16 << 20
_PARTS_OF_MEMORY = 128  # A chunk of text takes up to thirty times its size while it is looked at.


@dataclass
class FileReading:
    """How an input file is read: how much at a time, where what was read is kept, and how far it is."""

    chunk_bytes: int = _CHUNK_BYTES
    folder: str | None = None  # None: in memory
    done_bytes: int = 0  # of the file

    @classmethod
    def within(cls, memory_bytes: int | None, file_bytes: int, folder: str) -> FileReading:
        """How to read a file with this much memory: small files are kept there, others in a folder."""
        if memory_bytes is None:
            return cls()
        chunk = max(1 << 18, min(_CHUNK_BYTES, memory_bytes // _PARTS_OF_MEMORY))
        return cls(chunk, folder if file_bytes > memory_bytes // 16 else None)


class FileBlocks(Sequence[DataBlock]):
    """Makes block after block from columns."""

    def __init__(self, numbers: Sequence[int], make: Callable[[int], DataBlock], columns: ColumnSpool) -> None:
        """`numbers` are what blocks are made by; their places are those of the sequence."""
        self._numbers, self._make, self._columns = list(numbers), make, columns
        self.total_bytes = columns.size
        self.is_used_once = False  # `taken` gives all back

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> DataBlock: ...
    @overload
    def __getitem__(self, place: slice) -> list[DataBlock]: ...
    def __getitem__(self, place: int | slice) -> DataBlock | list[DataBlock]:
        if isinstance(place, slice):
            return [self._make(number) for number in self._numbers[place]]
        return self._make(self._numbers[place])

    def taken(self) -> None:
        """No more blocks will be read: if this was the only reader, free what they are made from."""
        if self.is_used_once:
            self._columns.close()
