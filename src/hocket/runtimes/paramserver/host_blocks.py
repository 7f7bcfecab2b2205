"""The blocks of a host as training uses them: all in memory, or as many as a memory budget allows."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from hocket.model.spill import COMFORT
from hocket.runtimes.paramserver.algorithm import Array, DataBlock
from hocket.runtimes.paramserver.block_file import MIB, BlockFile, SpillError, is_in_memory
from hocket.runtimes.paramserver.block_store import BlockStore
from hocket.runtimes.paramserver.memory_budget import (
    forget_peak,
    peak_resident_bytes,
    resident_bytes,
    room_in_cgroup_bytes,
)
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.worker_pool import WorkerPool

Result = TypeVar("Result")
_USED = 0.95  # of the budget, when what else is needed has been measured
_ALL = 0.99
_RESERVE = 0.05  # of the budget, that is left to others in the same cgroup
_LOOK_S = 0.02
_STATE_PARTS = 16  # in which the states of blocks are saved and restored, so that they are not all in memory at once


@dataclass(frozen=True)
class SpillOptions:
    """How much memory this process may have, and where the blocks go that do not fit into it."""

    memory_bytes: int
    folder: str | None = None  # None: the first folder for temporary files that is on a disk
    share: float | None = None  # of blocks on disk, if it is to stay the same; None: it is found


@dataclass(frozen=True)
class Spilled:
    """How much of a host's input is on disk."""

    # The share of its bytes: Harmony's α.
    share: float
    # These bytes.
    disk_bytes: int


class HostBlocks(Protocol):
    """The blocks of this host, by their numbers among all."""

    numbers: Sequence[int]

    def each(
        self, pool: WorkerPool, order: Sequence[int], work: Callable[[int, DataBlock], Result],
        take: Callable[[int, Result], None],
    ) -> None:  # fmt: skip
        """Work on blocks, and take the results in this order; see `WorkerPool.each`."""

    def expect(self, order: Sequence[int]) -> None:
        """The blocks that will be worked on next."""

    def state(self, number: int) -> Mapping[str, Array]:
        """The state of a block, while none is worked on."""

    def set_state(self, number: int, state: Mapping[str, Array]) -> None:
        """Give a block the state that it had before."""

    def epoch_took(self, seconds: float) -> None:
        """All blocks were worked on, which took so long."""

    def state_parts(self, numbers: Sequence[int]) -> list[list[int]]:
        """Blocks whose states may be in memory together."""

    @property
    def spilled(self) -> Spilled | None:
        """What is on disk; None: nothing ever is."""

    def close(self) -> None:
        """Give back memory and disk."""


class BlocksInMemory:
    """All blocks, as they were given."""

    spilled = None

    def __init__(self, blocks: Iterable[tuple[int, DataBlock]]) -> None:
        self._blocks = dict(blocks)
        self.numbers: Sequence[int] = list(self._blocks)

    def each(
        self, pool: WorkerPool, order: Sequence[int], work: Callable[[int, DataBlock], Result],
        take: Callable[[int, Result], None],
    ) -> None:  # fmt: skip
        """Work on blocks where they are."""
        pool.each(order, lambda number: work(number, self._blocks[number]), take)

    def expect(self, order: Sequence[int]) -> None:
        """They are there."""

    def state(self, number: int) -> Mapping[str, Array]:
        """That of the block."""
        return self._blocks[number].state

    def set_state(self, number: int, state: Mapping[str, Array]) -> None:
        """Change it in place."""
        self._blocks[number].state.update(state)

    def epoch_took(self, seconds: float) -> None:
        """Nothing depends on it."""

    def state_parts(self, numbers: Sequence[int]) -> list[list[int]]:
        """All at once."""
        return [list(numbers)]

    def close(self) -> None:
        """Nothing was opened."""


class SpilledBlocks:
    """Blocks of which a share is on disk, so that the whole process stays within its memory budget.

    What is left for blocks is the budget less all else that the process needs: an estimate at first, and after each
    epoch its measured peak.
    """

    def __init__(
        self, blocks: Iterable[tuple[int, DataBlock]], options: SpillOptions, workers: int, expected_bytes: int = 0
    ) -> None:
        """Take blocks one after the other, each with its number. Raises SpillError."""
        self._options = options
        found: list[int] = []
        file = spill_file(options.folder)
        self._measured, self._has_cgroup, self._checked_s = forget_peak(), False, 0.0
        budget = int(COMFORT * self._limit()) - resident_bytes()
        if budget <= 0:
            said = f"this process needs {resident_bytes() / MIB:.0f} MiB before it has any input"
            raise SpillError(f"the memory budget is {options.memory_bytes / MIB:.0f} MiB: {said}")

        def each() -> Iterable[DataBlock]:
            for number, block in blocks:
                found.append(number)
                yield block

        self._store = BlockStore(each(), budget, file, workers, expected_bytes)
        self.numbers: Sequence[int] = found
        self._places = {number: place for place, number in enumerate(found)}
        self._most_bytes = self._store.bytes_in_memory
        self._epochs = 0
        if options.share is not None:
            self._store.set_share_on_disk(options.share)

    def reserve(self, size: int) -> bool:
        """So many bytes will be needed for other things that are not there yet; False: even with all blocks on disk
        there is no room for them. Raises SpillError."""
        self._set_budget(COMFORT, max(0, resident_bytes() - self._store.bytes_in_memory) + size)
        forget_peak()
        return self._store.has_room

    def each(
        self, pool: WorkerPool, order: Sequence[int], work: Callable[[int, DataBlock], Result],
        take: Callable[[int, Result], None],
    ) -> None:  # fmt: skip
        """Work on blocks while others are read. Results that lie in a block's memory are copied."""
        store = self._store
        store.begin_round([self._places[number] for number in order])

        def worked(place: int) -> Result:
            found = work(order[place], store.begin(place))
            kept = store.end(place, found if isinstance(found, dict) else None)
            self._spill_if_short()
            return kept if isinstance(found, dict) else found  # type: ignore[return-value]

        pool.each(range(len(order)), worked, lambda place, found: take(order[place], found))
        self._most_bytes = max(self._most_bytes, store.bytes_in_memory)

    def expect(self, order: Sequence[int]) -> None:
        """Read the first of them ahead."""
        self._store.expect([self._places[number] for number in order])

    def state(self, number: int) -> Mapping[str, Array]:
        """From memory or from disk."""
        return self._store.state(self._places[number])

    def set_state(self, number: int, state: Mapping[str, Array]) -> None:
        """To memory or to disk."""
        self._store.set_state(self._places[number], {**self._store.state(self._places[number]), **state})

    def epoch_took(self, seconds: float) -> None:
        """Fit the budget to what was measured, and let α take a step."""
        self._epochs += 1
        peak = peak_resident_bytes()
        if peak > self._options.memory_bytes and self._measured and self._store.share_on_disk > _ALL:
            said = f"with all blocks on disk this process had {peak / MIB:.0f} MiB"
            raise SpillError(f"the memory budget is {self._options.memory_bytes / MIB:.0f} MiB: {said}")
        self._set_budget(_USED, max(0, peak - self._most_bytes))
        if self._options.share is None and self._epochs > 1:  # In the first one kernels are compiled and states made.
            self._store.round_took(seconds)
        self._most_bytes = self._store.bytes_in_memory
        forget_peak()

    def state_parts(self, numbers: Sequence[int]) -> list[list[int]]:
        """A part of them."""
        step = -(-len(numbers) // _STATE_PARTS)
        return [list(numbers[first : first + step]) for first in range(0, len(numbers), step)]

    @property
    def spilled(self) -> Spilled:
        """Now."""
        return Spilled(self._store.share_on_disk, self._store.bytes_on_disk)

    def close(self) -> None:
        """Give back memory and disk."""
        self._store.close()

    def _limit(self) -> int:
        """The budget, or what the cgroup that this job shares with others leaves, less some reserve."""
        room, most = room_in_cgroup_bytes(), self._options.memory_bytes
        self._has_cgroup = room is not None
        return most if room is None else min(most, resident_bytes() + room - int(_RESERVE * most))

    def _spill_if_short(self) -> None:
        """This process may need more than was measured, or others more of the cgroup: then blocks go to disk as soon as
        they were worked on."""
        now_s = time.monotonic()
        if now_s < self._checked_s + _LOOK_S:
            return
        self._checked_s = now_s
        most = self._options.memory_bytes
        room = room_in_cgroup_bytes() if self._has_cgroup else None
        short = resident_bytes() - int(_USED * most)
        if room is not None:
            short = max(short, int(_RESERVE * most) - room)
        if short > 0:
            self._store.lower_budget(short)

    def _set_budget(self, used: float, other: int) -> None:
        self._store.set_budget(int(used * self._limit()) - other, self._options.share is None)


def spill_file(folder: str | None) -> BlockFile:
    """Where blocks go; SpillError if nothing can be written to a folder that was named, or if it is in memory.

    Where none was named, that is found out when something must be written: all may fit into memory.
    """
    if folder is None:
        found = [folder for folder in (tempfile.gettempdir(), "/var/tmp") if os.path.isdir(folder)]
        folder = next((folder for folder in found if not is_in_memory(folder)), found[0])
        return BlockFile(folder, _why_not(folder))
    if why := _why_not(folder):
        raise SpillError(why)
    return BlockFile(folder)


def _why_not(folder: str) -> str:
    if not Path(folder).is_dir():
        return f"spill folder '{folder}' is not there"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"spill folder '{folder}' is not writable"
    if is_in_memory(folder):
        return f"spill folder '{folder}' is in memory itself (tmpfs): choose one on a disk"
    return ""


def is_too_large(layouts: Mapping[str, ArrayLayout], options: SpillOptions) -> bool:
    """Whether the model and the sums of its updates would take more memory than there is, without any input.

    Raises SpillError if it does already, as `init` made it.
    """
    size, now = sum(layout.rows * layout.row_bytes for layout in layouts.values()), resident_bytes()
    if now > options.memory_bytes:
        said = f"with the model of {size / MIB:.0f} MiB that init() makes this process has {now / MIB:.0f} MiB"
        if now - size > options.memory_bytes:
            said = f"this process needs {(now - size) / MIB:.0f} MiB before it has any input"
        raise SpillError(f"the memory budget is {options.memory_bytes / MIB:.0f} MiB: {said}")
    return now + 2 * size > COMFORT * options.memory_bytes


def expected_bytes(blocks: Sequence[DataBlock]) -> int:
    """The size of all blocks, if it is known before they are made; else 0."""
    if isinstance(blocks, list | tuple):
        return sum(array.nbytes for block in blocks for array in block.data.values())
    return int(getattr(blocks, "total_bytes", 0))
