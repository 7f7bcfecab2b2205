"""The blocks of an input file, each made when it is asked for, so that no more are in memory than a host keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from hocket.runtimes.paramserver.algorithm import DataBlock

if TYPE_CHECKING:
    from hocket.runtimes.paramserver.input_cache import InputCache

_CHUNK_BYTES = 16 << 20
_PARTS_OF_MEMORY = 128  # A chunk of text takes up to thirty times its size while it is looked at.


@dataclass
class FileReading:
    """How an input file is read: how much at a time, where what was read is kept, and how far it is."""

    chunk_bytes: int = _CHUNK_BYTES
    folder: str | None = None  # None: in memory
    cache: InputCache | None = None  # of blocks
    done_bytes: int = 0  # of the file

    @classmethod
    def within(
        cls, memory_bytes: int | None, file_bytes: int, folder: str, cache: InputCache | None = None
    ) -> FileReading:
        """How to read a file with this much memory: small files are kept there, others in a folder."""
        if memory_bytes is None:
            return cls(cache=cache)
        chunk = max(1 << 18, min(_CHUNK_BYTES, memory_bytes // _PARTS_OF_MEMORY))
        return cls(chunk, folder if file_bytes > memory_bytes // 16 else None, cache)

    def blocks(self, path: Path, key: Mapping[str, Any], read: Callable[[], ReadInput]) -> ReadInput:
        """What `read` makes of a file, or has made of it for this key before."""
        return read() if self.cache is None else self.cache.blocks(path, key, read)


class BlockSource(Protocol):
    """What blocks are made from."""

    @property
    def size(self) -> int:
        """Bytes of all."""

    def close(self) -> None:
        """Give back memory and disk."""


class FileBlocks(Sequence[DataBlock]):
    """Makes block after block."""

    def __init__(self, numbers: Sequence[int], make: Callable[[int], DataBlock], source: BlockSource) -> None:
        """`numbers` are what blocks are made by; their places are those of the sequence."""
        self._numbers, self._make, self._source = list(numbers), make, source
        self.total_bytes = source.size
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
            self.close()

    def close(self) -> None:
        """Give back what they are made from."""
        self._source.close()


class ReadInput(NamedTuple):
    """An input file that was read."""

    facts: dict[str, Any]  # numbers that an algorithm is given of its data
    blocks: FileBlocks
