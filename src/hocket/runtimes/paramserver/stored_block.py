"""One block of the input, in memory or on disk, with its state."""

from __future__ import annotations

import mmap
from collections.abc import Mapping

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, DataBlock
from hocket.runtimes.paramserver.block_file import BlockFile, SpillError
from hocket.runtimes.paramserver.packed_arrays import PAGE, ArrayPlaces, checksum, read_only


class StoredBlock:
    """Where a block is. Its data is written to disk once, its state whenever it has changed.

    Invariant: what is on disk is what was written last, by the checksums that are kept here; `size` is that of data and
    state together.
    """

    def __init__(self, given: DataBlock) -> None:
        """The form of a block; `take` gives the content."""
        self.name = given.name
        self.block: DataBlock | None = None  # None: it is on disk only
        self.memory: mmap.mmap | None = None  # of the data of `block`
        self.uses = 0  # how often it was worked on
        self._data = self._places(given.data)
        self._data_at: int | None = None  # place in the file
        self._data_sum = 0
        self._state = ArrayPlaces()  # as it is on disk
        self._state_at: int | None = None
        self._state_room = self._state_sum = 0
        self.size = self.size_with(given.state)

    def take(self, given: DataBlock) -> None:
        """Be in memory, with a copy of this block."""
        self.memory = mmap.mmap(-1, max(self._data.size, PAGE))
        self._data.put(given.data, self.memory)
        state = {name: np.array(array) for name, array in given.state.items()}
        self.block = DataBlock(self.name, read_only(self._data.arrays(self.memory)), state)

    def size_with(self, state: Mapping[str, Array]) -> int:
        """Bytes of the block with this state."""
        return self._data.size + self._places(state).size

    # -- on disk ------------------------------------------------------------------------------------------------

    def read(self, file: BlockFile, slot: mmap.mmap) -> None:
        """Read data and state into a buffer. Raises SpillError."""
        assert self._data_at is not None
        file.read(self._named(), slot, 0, self._data.size, self._data_at)
        self._must_be(slot, 0, self._data.size, self._data_sum)
        self._read_state(file, slot, self._data.size)

    def block_in(self, slot: mmap.mmap) -> DataBlock:
        """What was read into a buffer."""
        data = read_only(self._data.arrays(slot))
        return DataBlock(self.name, data, self._state.arrays(slot, self._data.size))

    def read_state(self, file: BlockFile) -> dict[str, Array]:
        """The state alone, in memory of its own."""
        buffer = mmap.mmap(-1, max(self._state.size, PAGE))
        self._read_state(file, buffer, 0)
        return self._state.arrays(buffer)

    def write(self, file: BlockFile) -> None:
        """Write what is in memory and not yet on disk. Raises SpillError."""
        assert self.block is not None
        assert self.memory is not None
        if self._data_at is None:
            self._data_sum = checksum(self.memory, 0, self._data.size)
            self._data_at = file.write(self._named(), self.memory, 0, self._data.size)
        self.write_state(file, self.block.state)

    def write_state(self, file: BlockFile, state: Mapping[str, Array], slot: mmap.mmap | None = None) -> int:
        """Write a state, if it is another one than that on disk; `slot` is what it was read into. The block's size."""
        places, buffer, offset = self._places(state), slot, self._data.size
        if slot is None or places != self._state or not _may_be_packed(state, slot, places, offset):
            # Arrays in the buffer may have changed places: one would overwrite the next.
            buffer, offset = mmap.mmap(-1, max(places.size, PAGE)), 0
        assert buffer is not None
        places.put(state, buffer, offset)
        found = checksum(buffer, offset, places.size)
        if places != self._state or found != self._state_sum:
            at = self._state_at if places.size <= self._state_room else None
            if places.size:
                self._state_at = file.write(f"the state of {self._named()}", buffer, offset, places.size, at)
                self._state_room = places.size if at is None else self._state_room
            self._state, self._state_sum = places, found
        return self._data.size + places.size

    def _read_state(self, file: BlockFile, buffer: mmap.mmap, offset: int) -> None:
        if self._state.size:
            assert self._state_at is not None
            file.read(f"the state of {self._named()}", buffer, offset, self._state.size, self._state_at)
            self._must_be(buffer, offset, self._state.size, self._state_sum)

    def _must_be(self, buffer: mmap.mmap, offset: int, size: int, expected: int) -> None:
        if checksum(buffer, offset, size) != expected:
            raise SpillError(f"{self._named()}: what was read from disk is not what was written (checksum)")

    def _places(self, arrays: Mapping[str, Array]) -> ArrayPlaces:
        try:
            return ArrayPlaces.of(arrays)
        except ValueError as error:
            raise SpillError(f"{self._named()}: {error}") from None

    def _named(self) -> str:
        return f"block '{self.name}'"


def _may_be_packed(state: Mapping[str, Array], slot: mmap.mmap, places: ArrayPlaces, offset: int) -> bool:
    """Whether each array lies at its own place, or elsewhere than in the buffer."""
    memory = np.frombuffer(slot, np.uint8)
    there = places.arrays(slot, offset)
    return all(
        array.__array_interface__["data"][0] == there[name].__array_interface__["data"][0]
        if np.may_share_memory(array, memory)
        else True
        for name, array in state.items()
    )
