"""A job's input as blocks: a share α of them on disk, the others in memory, within a budget.

Blocks on disk are read ahead by a thread while others are computed on. They are read and written around the page cache
(O_DIRECT), for otherwise the kernel would keep in memory what does not fit into it, and their cost would show only when
another job needs that memory. That is as fast as to read through the cache and to drop what was read, at half
of the CPU time (`python -m benchmarks.block_store`); the latter is done where the file system has no O_DIRECT.

All is in one file without a name: it is gone with the process, however that ends.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hocket.model.spill import Climb, climb

Array = NDArray[Any]
_PAGE = 4096  # O_DIRECT reads and writes whole pages, to and from memory that begins with one.
_READ_BYTES = 8 << 20  # in one call
_MIB = 1 << 20
_SLOWER = 1.2  # times the best round: the load has changed …
_SLOW_ROUNDS = 3  # … if it is so for so many rounds, and α is to be found anew


class SpillError(Exception):
    """Blocks do not fit into the memory budget or onto the disk, or cannot be read; one line."""


class InputBlock(Protocol):
    """What a store is given."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def data(self) -> Mapping[str, Array]:
        """Its arrays, which are never changed."""


class _Layout(NamedTuple):
    """Where an array is within its block."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Block:
    """One block; `data` is None if it is on disk only, `place` is None if it was never written."""

    def __init__(self, block: InputBlock) -> None:
        self.name = block.name
        self.data: Mapping[str, Array] | None = block.data
        self.place: int | None = None
        self.layouts: list[_Layout] = []
        end = 0
        for name, array in block.data.items():
            if array.dtype.hasobject:
                said = f"array '{name}' has Python objects (dtype {array.dtype}), which cannot be kept on disk"
                raise SpillError(f"block '{block.name}': {said}")
            self.layouts.append(_Layout(name, end, array.shape, array.dtype))
            end += _whole_pages(array.nbytes)
        self.size = end


class BlockStore:
    """Holds blocks, of which it keeps as many in memory as the budget and the wanted share on disk allow."""

    def __init__(self, blocks: Iterable[InputBlock], budget_bytes: int, folder: str, in_use: int = 1) -> None:
        """Take over `blocks`, one after the other: let them come from a generator, and no others keep them in memory.

        `budget_bytes` is for blocks in memory and for what is read ahead, `folder` has room for the others. The data of
        a block stays valid until `in_use` others were asked for. Raises SpillError, and leaves nothing then.
        """
        if in_use < 1:
            raise ValueError(f"in_use must be a count from 1, not {in_use}")
        self._budget, self._folder, self._in_use = budget_bytes, folder, in_use
        self._blocks: list[_Block] = []
        self._fd, self._is_direct = -1, False
        self._end = 0  # of the file
        self._largest = self._total = self._in_memory = 0
        self._wanted = 0.0  # share on disk
        self._climb: Climb | None = None
        self._slow_rounds, self._comes_back = 0, False
        self._reader = ThreadPoolExecutor(1, "read blocks")
        try:
            for block in blocks:
                self._add(_Block(block))
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
        self._reader.shutdown(cancel_futures=True)
        self._blocks.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Array]]]:
        return self.read(range(len(self._blocks)))

    # -- the share on disk --------------------------------------------------------------------------------------

    @property
    def share_on_disk(self) -> float:
        """α: the share of bytes that is not in memory."""
        return 1.0 - self._in_memory / self._total if self._total else 0.0

    @property
    def bytes_in_memory(self) -> int:
        """Of blocks and of buffers that are read into."""
        return self._in_memory + (self._buffers_bytes if self._in_memory < self._total else 0)

    def set_share_on_disk(self, alpha: float) -> float:
        """Want this share on disk from now on; the share that it will be, which is larger if memory does not suffice.

        What goes to disk is written now. What comes back stays in memory when it is read the next time. Raises
        SpillError if the disk has no room for it; then what could not be written stays in memory.
        """
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"the share on disk must be from 0 to 1, not {alpha:g}")
        self._wanted = alpha
        staying = self._staying()
        for i, block in enumerate(self._blocks):
            if block.data is not None and i not in staying:
                self._spill(block)
        return 1.0 - sum(self._blocks[i].size for i in staying) / self._total if self._total else 0.0

    def round_took(self, round_s: float) -> float:
        """After each round, how long it took: α takes its next step by hill climbing; gives the new share.

        When α is found, it stays, until three rounds in a row take over a fifth longer than the best one did.
        """
        if self._comes_back:  # Blocks were still read from disk in this round, to stay in memory from now on.
            self._comes_back = False
            return self.share_on_disk
        if self._climb is None:
            self._climb = Climb(self.share_on_disk, best_alpha=self.share_on_disk)
        if not self._climb.done:
            self._climb = climb(self._climb, round_s)
            # The last step may have been one too far.
            share = self.set_share_on_disk(self._climb.best_alpha if self._climb.done else self._climb.alpha)
            self._climb = replace(self._climb, alpha=share)  # It may be larger, for want of memory.
            self._comes_back = share < self.share_on_disk
            return share
        assert self._climb.best_s is not None
        self._slow_rounds = self._slow_rounds + 1 if round_s > _SLOWER * self._climb.best_s else 0
        if self._slow_rounds >= _SLOW_ROUNDS:
            self._climb, self._slow_rounds = Climb(self._wanted, best_alpha=self._wanted), 0
        return self.share_on_disk

    def _staying(self) -> set[int]:
        """The blocks that are to be in memory. A small change of α moves few of them, and those on disk are spread
        evenly, so that there is time to read each while others are computed on."""
        on_disk, wanted, room = 0, self._wanted * self._total, self._room()
        staying = set(range(len(self._blocks)))
        for i in _spread(len(self._blocks)):
            size = self._blocks[i].size
            if self._total - on_disk <= room and on_disk + size / 2 > wanted:
                break
            staying.discard(i)
            on_disk += size
        return staying

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, order: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Array]]]:
        """The blocks with these numbers, in this order: each with its arrays, which are not to be changed."""
        staying = self._staying()
        coming = deque(i for i in order if self._blocks[i].data is None)  # not read yet
        reading: deque[tuple[int, Future[mmap.mmap]]] = deque()
        free: list[mmap.mmap] = []
        made, lent = 0, deque[mmap.mmap | None]()
        most = self._in_use + 1
        try:
            for i in order:
                if len(lent) >= self._in_use and (back := lent.popleft()) is not None:
                    free.append(back)
                while coming and (free or made < most):
                    made += not free
                    buffer = free.pop() if free else mmap.mmap(-1, max(self._largest, _PAGE))
                    block = self._blocks[coming[0]]
                    reading.append((coming.popleft(), self._reader.submit(self._fill, block, buffer)))
                block = self._blocks[i]
                if not reading or reading[0][0] != i:
                    assert block.data is not None
                    lent.append(None)
                    yield i, block.data
                    continue
                buffer = reading.popleft()[1].result()
                if i in staying and self._keep(block, buffer):
                    assert block.data is not None
                    free.append(buffer)
                    lent.append(None)
                    yield i, block.data
                else:
                    lent.append(buffer)
                    yield i, _arrays(block, buffer)
        finally:
            for _, future in reading:
                future.cancel()
            for _, future in reading:
                with suppress(BaseException):
                    future.result()

    @property
    def _buffers_bytes(self) -> int:
        return (self._in_use + 1) * max(self._largest, _PAGE)

    def _fill(self, block: _Block, buffer: mmap.mmap) -> mmap.mmap:
        """In the reader's thread."""
        assert block.place is not None
        with memoryview(buffer) as view:
            done = 0
            while done < block.size:
                with view[done : min(done + _READ_BYTES, block.size)] as part:
                    try:
                        count = os.preadv(self._fd, [part], block.place + done)
                    except OSError as error:
                        raise SpillError(f"block '{block.name}' cannot be read from disk: {error.strerror}") from error
                if not count:
                    raise SpillError(f"block '{block.name}' ends after {done} of {block.size} bytes on disk")
                done += count
        if not self._is_direct:
            os.posix_fadvise(self._fd, block.place, block.size, os.POSIX_FADV_DONTNEED)
        return buffer

    def _keep(self, block: _Block, buffer: mmap.mmap) -> bool:
        """Let a block that was read stay in memory, if there is room."""
        if self._in_memory + block.size > self._room():
            return False
        copy = mmap.mmap(-1, max(block.size, 1))
        copy[: block.size] = buffer[: block.size]
        block.data = _arrays(block, copy)
        self._in_memory += block.size
        return True

    # -- writing ------------------------------------------------------------------------------------------------

    def _add(self, block: _Block) -> None:
        """Keep a new block, or what would be one too many, within the budget."""
        self._largest = max(self._largest, block.size)
        self._total += block.size
        if self._room() < 0:
            needed, budget = self._buffers_bytes / _MIB, self._budget / _MIB
            said = f"{self._in_use + 1} blocks of its size are {needed:.1f} MiB, the memory budget is {budget:.1f} MiB"
            raise SpillError(f"block '{block.name}' is too large: {said}")
        self._blocks.append(block)
        self._in_memory += block.size
        for i in _spread(len(self._blocks)) if self._in_memory > self._room() else ():
            if self._blocks[i].data is not None and self._in_memory > self._room():
                self._spill(self._blocks[i])

    def _room(self) -> int:
        """For blocks that stay in memory: the budget, less what is read into or written from. Below 0: it is too small.

        Where not even that fits, all blocks may still be small enough to need no disk.
        """
        room = self._budget - self._buffers_bytes
        return self._budget if room < 0 and self._total <= self._budget else room

    def _spill(self, block: _Block) -> None:
        """Let a block be on disk only."""
        if block.place is None:
            self._write(block)
        block.data = None
        self._in_memory -= block.size

    def _write(self, block: _Block) -> None:
        assert block.data is not None
        try:
            if self._fd < 0:
                self._fd, self._is_direct = _nameless_file(self._folder)
            place = self._end
            try:
                os.posix_fallocate(self._fd, place, max(block.size, 1))  # so that the disk is full now, or not at all
                # Arrays need not begin at whole pages. Nothing is read meanwhile: the budget has room for one more.
                with mmap.mmap(-1, max(block.size, _PAGE)) as buffer:
                    _pack(block, buffer)
                    _write_all(self._fd, buffer, block.size, place)
            except OSError:
                os.ftruncate(self._fd, place)
                raise
            if not self._is_direct:
                os.fdatasync(self._fd)
                os.posix_fadvise(self._fd, place, block.size, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise SpillError(_no_room(block, self._folder, error)) from error
        block.place = place
        self._end = place + block.size


def _pack(block: _Block, buffer: mmap.mmap) -> None:
    assert block.data is not None
    for layout in block.layouts:
        there = np.frombuffer(buffer, layout.dtype, int(np.prod(layout.shape)), layout.offset)
        there.reshape(layout.shape)[...] = block.data[layout.name]
        del there  # A buffer that is looked at cannot be closed.


def _arrays(block: _Block, buffer: mmap.mmap) -> dict[str, Array]:
    """The arrays of a block that lies in a buffer, read-only."""
    found = {}
    for layout in block.layouts:
        array = np.frombuffer(buffer, layout.dtype, int(np.prod(layout.shape)), layout.offset)
        found[layout.name] = array.reshape(layout.shape)
        found[layout.name].flags.writeable = False
    return found


def _write_all(fd: int, buffer: mmap.mmap, size: int, place: int) -> None:
    with memoryview(buffer) as view:
        done = 0
        while done < size:
            with view[done:size] as part:
                done += os.pwritev(fd, [part], place + done)


def _nameless_file(folder: str) -> tuple[int, bool]:
    """A file that no other process finds and that is gone with this one; whether it goes around the page cache."""
    for direct in (os.O_DIRECT, 0):
        try:
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC | direct, 0o600), bool(direct)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EISDIR):
                raise
    fd, path = tempfile.mkstemp(prefix="blocks-", dir=folder)  # The file system has no files without a name.
    os.unlink(path)
    return fd, False


def _no_room(block: _Block, folder: str, error: OSError) -> str:
    said = f"block '{block.name}' of {block.size / _MIB:.1f} MiB cannot be kept in folder '{folder}'"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with suppress(OSError):
            room = os.statvfs(folder)
            return f"{said}: {room.f_bavail * room.f_frsize / _MIB:.1f} MiB are free"
    return f"{said}: {error.strerror}"


def _spread(count: int) -> Iterator[int]:
    """All numbers below `count`, such that the first few are spread evenly, however many: by their bits in reverse."""
    bits = max(count - 1, 0).bit_length()
    for number in range(1 << bits):
        reverse = int(f"{number:0{bits}b}"[::-1], 2) if bits else 0
        if reverse < count:
            yield reverse


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
