"""A job's input as blocks: a share α of them on disk, the others in memory, within a budget.

What belongs to a block and changes, its state, is where the block is. Blocks on disk are read ahead by a thread while
others are computed on; the same thread writes back states that have changed, so that a later read finds them.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from msgspec.structs import replace

from hocket.model.spill import Climb, climb
from hocket.runtimes.paramserver.algorithm import Array, DataBlock
from hocket.runtimes.paramserver.block_file import MIB, BlockFile, SpillError
from hocket.runtimes.paramserver.packed_arrays import PAGE
from hocket.runtimes.paramserver.stored_block import StoredBlock

_ALIKE = 1.05  # times another round: the difference may be chance
_OTHER = 1.2  # times the best round, or the best round times this: the load has changed …
_OTHER_ROUNDS = 3  # … if it is so for so many rounds, and α is to be found anew


class _Used(NamedTuple):
    """A block that is computed on."""

    stored: StoredBlock
    block: DataBlock
    slot: mmap.mmap | None  # that it was read into; None: it is in memory


class BlockStore:
    """Holds blocks, of which it keeps as many in memory as the budget and the wanted share on disk allow."""

    def __init__(
        self, blocks: Iterable[DataBlock], budget_bytes: int, folder: str | BlockFile, in_use: int = 1,
        expected_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Copy `blocks`, one after the other: let them come from a generator, and no others keep them in memory.

        `budget_bytes` is for blocks in memory and for what is read ahead, `folder` has room for the others; if it has
        not, and `expected_bytes` says how much will come, that is known before anything is written. At most `in_use`
        blocks are computed on at a time. Raises SpillError, and leaves nothing then.
        """
        if in_use < 1:
            raise ValueError(f"in_use must be a count from 1, not {in_use}")
        self._budget, self._in_use, self._expected = budget_bytes, in_use, expected_bytes
        self._blocks: list[StoredBlock] = []
        self.file = BlockFile(folder) if isinstance(folder, str) else folder
        self._largest = self._total = self._in_memory = 0
        self._wanted = 0.0  # share on disk
        self._climb: Climb | None = None
        self._other_rounds, self._comes_back = 0, False
        self._changed = threading.Condition(threading.RLock())
        self._io = ThreadPoolExecutor(1, "blocks on disk")
        self._failure: BaseException | None = None  # an error of the thread, until it is raised
        self._slots, self._free = 0, list[mmap.mmap]()  # that blocks are read into
        self._order: list[int] = []
        self._coming: deque[int] = deque()  # places in the order whose blocks are not read yet
        self._reading: dict[int, tuple[Future[mmap.mmap], mmap.mmap]] = {}  # by place
        self._using: dict[int, _Used] = {}  # by place
        self._is_begun = False
        self._staying_now: set[int] = set()  # that are to be in memory after this round
        try:
            for block in blocks:
                self._add(block)
            self._wanted = self.share_on_disk
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give back memory and disk."""
        self._io.shutdown(cancel_futures=True)
        self._blocks.clear()
        self.file.close()

    def __len__(self) -> int:
        return len(self._blocks)

    # -- the share on disk --------------------------------------------------------------------------------------

    @property
    def share_on_disk(self) -> float:
        """α: the share of bytes that is not in memory."""
        return 1.0 - self._in_memory / self._total if self._total else 0.0

    @property
    def bytes_on_disk(self) -> int:
        """The size of all blocks that are not in memory."""
        return self._total - self._in_memory

    @property
    def bytes_in_memory(self) -> int:
        """The size of all blocks in memory, and of the buffers that blocks are read into."""
        return self._in_memory + (self._slots_bytes if self._in_memory < self._total else 0)

    @property
    def has_room(self) -> bool:
        """Whether the budget suffices with all blocks on disk."""
        return self._room() >= 0

    def set_budget(self, budget_bytes: int, find_share: bool = True) -> None:
        """From now on keep to another budget; α is found anew if that changes much. Raises SpillError."""
        before = self._room()
        self._budget = budget_bytes
        if find_share and abs(self._room() - before) > self._total / 20:
            self._climb, self._comes_back = None, True
            self.set_share_on_disk(0.0)
        elif self._in_memory > self._room():
            self.set_share_on_disk(self._wanted)

    def lower_budget(self, by_bytes: int) -> None:
        """Use so many bytes less than now: blocks go to disk as soon as they are no longer used."""
        with self._changed:
            self._budget = min(self._budget, self.bytes_in_memory - by_bytes)

    def set_share_on_disk(self, alpha: float) -> float:
        """Want this share on disk from now on; the share that it will be, which is larger if memory does not suffice.

        What goes to disk is written now. What comes back stays in memory when it is read the next time. Raises
        SpillError if the disk has no room for it; then what could not be written stays in memory.
        """
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"the share on disk must be from 0 to 1, not {alpha:g}")
        self._wanted = alpha
        staying = self._staying(alpha)
        for i, stored in enumerate(self._blocks):
            if i not in staying and stored.block is not None:
                self._io.submit(self._spill, stored).result()
        return self._share_without(staying)

    def round_took(self, round_s: float) -> float:
        """After each round, how long it took: α takes its next step by hill climbing; gives the new share.

        When α is found, it stays, until three rounds in a row take a fifth longer than the best one did, or are as much
        shorter.
        """
        if self._comes_back:  # Blocks were still read from disk in this round, to stay in memory from now on.
            self._comes_back = False
            return self.share_on_disk
        if self._climb is None:
            self._climb = Climb(self.share_on_disk, best_alpha=self.share_on_disk)
        if not self._climb.done:
            least = self._share_without(self._staying(0.0))
            self._climb = climb(self._climb, self._judged(self._climb, round_s), least)
            # The last step may have been one too far.
            share = self.set_share_on_disk(self._climb.best_alpha if self._climb.done else self._climb.alpha)
            self._climb = replace(self._climb, alpha=share)  # It may be another, as blocks are whole.
            self._comes_back = share < self.share_on_disk
            return share
        assert self._climb.best_s is not None
        is_other = round_s > _OTHER * self._climb.best_s or round_s * _OTHER < self._climb.best_s
        self._other_rounds = self._other_rounds + 1 if is_other else 0
        if self._other_rounds >= _OTHER_ROUNDS:
            self._climb, self._other_rounds = Climb(self._wanted, best_alpha=self._wanted), 0
        return self.share_on_disk

    def _judged(self, at: Climb, round_s: float) -> float:
        """A round that took about as long as the best one: it was longer if more was on disk, and else shorter.

        So chance does not move α, and as little as possible is on disk.
        """
        if at.best_s is None or not at.best_s / _ALIKE < round_s < at.best_s * _ALIKE:
            return round_s
        return at.best_s * (_ALIKE if at.alpha > at.best_alpha else 1 / _ALIKE)

    def _share_without(self, staying: set[int]) -> float:
        """α, if these blocks are in memory."""
        return 1.0 - sum(self._blocks[i].size for i in staying) / self._total if self._total else 0.0

    def _staying(self, alpha: float) -> set[int]:
        """The blocks that are to be in memory. A small change of α moves few of them, and those on disk are spread
        evenly, so that there is time to read each while others are computed on."""
        on_disk, wanted, room = 0, alpha * self._total, self._room()
        staying = set(range(len(self._blocks)))
        for i in _spread(len(self._blocks)):
            size = self._blocks[i].size
            if self._total - on_disk <= room and on_disk + size / 2 > wanted:
                break
            staying.discard(i)
            on_disk += size
        return staying

    # -- rounds -------------------------------------------------------------------------------------------------

    def expect(self, order: Sequence[int]) -> None:
        """Say which blocks the next round will use, so that the first are read ahead."""
        with self._changed:
            for future, slot in self._reading.values():  # of a round that was not ended
                self._io.submit(self._give_back_read, future, slot)
            self._reading.clear()
            self._order, self._is_begun = list(order), False
            self._coming = deque(place for place, i in enumerate(order) if self._blocks[i].block is None)
            self._read_ahead()

    def begin_round(self, order: Sequence[int]) -> None:
        """Use the blocks with these numbers, in this order: then `begin` and `end` each by its place."""
        if self._is_begun or self._order != list(order):
            self.expect(order)
        self._is_begun = True
        self._staying_now = self._staying(self._wanted)

    def begin(self, place: int) -> DataBlock:
        """The block at a place of the order, when it is there. Its data is not to be changed, its state may be.

        It stays valid until `end`. Threads may call it for several places, all of the lowest ones that were not ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: place not in self._coming or self._failure is not None)
            self._check()
            i = self._order[place]
            stored = self._blocks[i]
            reading = self._reading.pop(place, None)
            stored.uses += 1
            if reading is None and stored.block is not None:
                self._using[place] = _Used(stored, stored.block, None)
                return stored.block
            if reading is None:  # It went to disk since the order was told.
                self._slots += 1
                slot = mmap.mmap(-1, max(stored.size, PAGE))
                reading = (self._io.submit(self._fill, stored, slot), slot)
        slot = reading[0].result()
        block = stored.block_in(slot)
        if i in self._staying_now and self._keep(stored, block):
            assert stored.block is not None
            self._give_back(slot)
            self._using[place] = _Used(stored, stored.block, None)
            return stored.block
        with self._changed:
            self._using[place] = _Used(stored, block, slot)
        return block

    def end(self, place: int, results: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The block at a place is no longer used. Its state is kept; `results` that lie in its memory are copied."""
        with self._changed:
            stored, block, slot = self._using.pop(place)
        kept = dict(results or {})
        if slot is not None:
            memory = np.frombuffer(slot, np.uint8)
            kept = {name: a.copy() if np.may_share_memory(a, memory) else a for name, a in kept.items()}
            del memory
            self._later(lambda: self._put_back(stored, block, slot))
            return kept
        with self._changed:
            self._note_size(stored, stored.size_with(block.state))
            is_over = self._in_memory > self._room()
        if is_over:  # by states that were made now; this block is the one that will not be needed for longest
            self._later(lambda: self._spill(stored))
        return kept

    def read(self, order: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Array]]]:
        """The blocks with these numbers, in this order: each with its arrays, valid until `in_use` others were."""
        self.begin_round(order)
        used: deque[int] = deque()
        try:
            for place, i in enumerate(order):
                if len(used) >= self._in_use:
                    self.end(used.popleft())
                data = self.begin(place).data
                used.append(place)
                yield i, data
        finally:
            for place in used:
                self.end(place)

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Array]]]:
        return self.read(range(len(self._blocks)))

    # -- states -------------------------------------------------------------------------------------------------

    def state(self, number: int) -> Mapping[str, Array]:
        """What a block has for its state now, between rounds."""
        stored = self._blocks[number]
        if stored.block is None:
            return self._io.submit(stored.read_state, self.file).result()
        self._check()
        return stored.block.state

    def set_state(self, number: int, state: Mapping[str, Array]) -> None:
        """Give a block another state, between rounds."""
        stored = self._blocks[number]
        if stored.block is None:
            self._io.submit(stored.write_state, self.file, state).result()
        else:
            stored.block.state.clear()
            stored.block.state.update(state)
        self._note_size(stored, stored.size_with(state))
        if stored.block is not None and self._in_memory > self._room():
            self._io.submit(self._spill, stored).result()

    # -- inside -------------------------------------------------------------------------------------------------

    def _add(self, given: DataBlock) -> None:
        """Keep a new block, or what would be one too many, within the budget."""
        stored = StoredBlock(given)
        self._largest = max(self._largest, stored.size)
        self._total += stored.size
        if self._room() < 0:
            needed, budget = self._slots_bytes / MIB, self._budget / MIB
            said = f"{self._in_use + 1} blocks of its size are {needed:.1f} MiB, the memory budget is {budget:.1f} MiB"
            raise SpillError(f"block '{stored.name}' is too large: {said}")
        for i in _spread(len(self._blocks)) if self._in_memory + stored.size > self._room() else ():
            if self._blocks[i].block is not None and self._in_memory + stored.size > self._room():
                self._spill_first(self._blocks[i])
        self._blocks.append(stored)
        stored.take(given)
        self._in_memory += stored.size
        if self._in_memory > self._room():
            self._spill_first(stored)

    def _spill_first(self, stored: StoredBlock) -> None:
        if self.file.fd < 0 and self._expected:
            self.file.check_room(max(0, self._expected - max(0, self._room())))
        self._io.submit(self._spill, stored).result()

    @property
    def _slots_bytes(self) -> int:
        return (self._in_use + 1) * max(self._largest, PAGE)

    def _room(self) -> int:
        """For blocks that stay in memory: the budget, less what is read into or written from. Below 0: it is too small.

        Where not even that fits, all blocks may still be small enough to need no disk.
        """
        room = self._budget - self._slots_bytes
        return self._budget if room < 0 and self._total <= self._budget else room

    def _note_size(self, stored: StoredBlock, size: int) -> None:
        with self._changed:
            added = size - stored.size
            stored.size = size
            self._total += added
            self._in_memory += added if stored.block is not None else 0
            self._largest = max(self._largest, size)

    def _keep(self, stored: StoredBlock, block: DataBlock) -> bool:
        """Let a block that was read stay in memory, if there is room."""
        with self._changed:
            if self._in_memory + stored.size > self._room():
                return False
            self._in_memory += stored.size
        stored.take(block)
        return True

    def _read_ahead(self) -> None:
        """With the lock held: let blocks be read as far as there are buffers."""
        while self._coming and (self._free or self._slots <= self._in_use):
            place = self._coming.popleft()
            stored = self._blocks[self._order[place]]
            slot = self._free.pop() if self._free else None
            self._slots += slot is None
            if slot is None or len(slot) < stored.size:
                slot = mmap.mmap(-1, max(self._largest, PAGE))
            self._reading[place] = (self._io.submit(self._fill, stored, slot), slot)
        self._changed.notify_all()

    def _give_back(self, slot: mmap.mmap) -> None:
        with self._changed:
            if self._slots > self._in_use + 1:
                self._slots -= 1
            else:
                self._free.append(slot)
            self._read_ahead()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _later(self, work: Callable[[], None]) -> None:
        def noted() -> None:
            try:
                work()
            except BaseException as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()

        self._io.submit(noted)

    # In the thread:

    def _fill(self, stored: StoredBlock, slot: mmap.mmap) -> mmap.mmap:
        """Read a block; into a larger buffer if its state has grown since it was asked for."""
        found = slot if len(slot) >= stored.size else mmap.mmap(-1, stored.size)
        stored.read(self.file, found)
        return found

    def _give_back_read(self, future: Future[mmap.mmap], slot: mmap.mmap) -> None:
        self._give_back(slot if future.exception() is not None else future.result())

    def _put_back(self, stored: StoredBlock, block: DataBlock, slot: mmap.mmap) -> None:
        try:
            size = stored.write_state(self.file, block.state, slot)
            self._note_size(stored, size)
        finally:
            self._give_back(slot)

    def _spill(self, stored: StoredBlock) -> None:
        """Let a block be on disk only, unless it is used: then its state may change, and it stays for now."""
        uses = stored.uses
        if stored.block is not None:
            stored.write(self.file)
            with self._changed:
                if stored.uses == uses and all(used.stored is not stored for used in self._using.values()):
                    stored.block = stored.memory = None
                    self._in_memory -= stored.size


def _spread(count: int) -> Iterator[int]:
    """All numbers below `count`, such that the first few are spread evenly, however many: by their bits in reverse."""
    bits = max(count - 1, 0).bit_length()
    for number in range(1 << bits):
        reverse = int(f"{number:0{bits}b}"[::-1], 2) if bits else 0
        if reverse < count:
            yield reverse
