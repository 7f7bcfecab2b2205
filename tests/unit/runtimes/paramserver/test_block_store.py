"""Blocks in memory and on disk: the same arrays come back, within the memory budget, and nothing is left of them."""

import ctypes
import errno
import mmap
import os
import resource
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.runtimes.paramserver import block_file
from hocket.runtimes.paramserver.algorithm import DataBlock
from hocket.runtimes.paramserver.block_file import SpillError
from hocket.runtimes.paramserver.block_store import BlockStore
from hocket.runtimes.paramserver.stored_block import StoredBlock

PAGE = 4096
SIZE = 16 * PAGE


Block = DataBlock


def block(number: int, size: int = SIZE) -> Block:
    """Two arrays, the second of another type and a shape of its own."""
    first = np.full((size - PAGE) // 8, number, np.float64)
    return Block(f"block {number}", {"x": first, "y": np.arange(number, number + 6, dtype=np.int32).reshape(2, 3)})


def blocks(count: int):
    return (block(number) for number in range(count))


def same(found: dict[str, np.ndarray], number: int) -> bool:
    return all(np.array_equal(array, block(number).data[name]) for name, array in found.items())


@pytest.fixture(params=["O_DIRECT", "with the page cache"])
def anyhow(request, monkeypatch):
    if request.param != "O_DIRECT":
        monkeypatch.setattr(block_file.os, "O_DIRECT", 0)


@pytest.mark.usefixtures("anyhow")
@pytest.mark.parametrize("budget", [3, 5, 20, 100])
def test_what_is_read_is_what_was_given_in_the_order_that_is_asked_for(tmp_path, budget):
    with BlockStore(blocks(16), budget * SIZE, str(tmp_path)) as store:
        assert store.bytes_in_memory <= budget * SIZE
        assert (store.share_on_disk > 0) == (budget < 18)
        for order in (range(16), range(15, -1, -1), [3, 3, 7, 0]):
            seen = [(i, same(data, i)) for i, data in store.read(order)]
            assert seen == [(i, True) for i in order]
            assert store.bytes_in_memory <= budget * SIZE
        assert not os.listdir(tmp_path), "a file that has a name could be left"


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.integers(1, 3),
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.integers(0, 60),
)
def test_whatever_the_shares_the_budget_is_kept_and_the_arrays_are_right(tmp_path_factory, sizes, in_use, shares, room):
    given_blocks = [block(number, size * PAGE + PAGE) for number, size in enumerate(sizes)]
    largest = max(store_size(each) for each in given_blocks)
    budget = (in_use + 1) * largest + room * PAGE
    with BlockStore(given_blocks, budget, str(tmp_path_factory.getbasetemp()), in_use) as store:
        assert all(store.bytes_in_memory <= budget for _ in store)
        for share in shares:
            coming = store.set_share_on_disk(share)
            assert coming >= share - largest / sum(map(store_size, given_blocks))
            for _ in range(2):
                held = []
                for i, data in store:
                    held = [*held, (i, data)][-in_use:]
                    for number, each in held:
                        expected = given_blocks[number].data
                        assert all(np.array_equal(each[name], expected[name]) for name in expected)
                    assert store.bytes_in_memory <= budget
            assert store.share_on_disk == pytest.approx(coming)


def store_size(each: Block) -> int:
    return sum(-(-array.nbytes // PAGE) * PAGE for array in each.data.values())


def test_blocks_on_disk_are_spread_evenly_and_few_move_when_the_share_changes(tmp_path):
    with BlockStore(blocks(16), 1000 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(0.25)
        on_disk = {i for i, each in enumerate(store._blocks) if each.block is None}
        assert on_disk == {0, 4, 8, 12}
        store.set_share_on_disk(0.5)
        assert {i for i, each in enumerate(store._blocks) if each.block is None} == set(range(0, 16, 2))


def pages_in_cache(fd: int) -> int:
    """Of a file, without reading any."""
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        found = (ctypes.c_ubyte * (size // PAGE))()
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), found) == 0
        return sum(page & 1 for page in found)


@pytest.mark.usefixtures("anyhow")
def test_what_was_written_and_read_is_not_in_the_page_cache(tmp_path):
    with BlockStore(blocks(8), 3 * SIZE, str(tmp_path)) as store:
        assert len(list(store)) == 8
        assert pages_in_cache(store.file.fd) == 0
        fd = os.open(f"/proc/self/fd/{store.file.fd}", os.O_RDWR)
        try:
            os.preadv(fd, [bytearray(PAGE)], 0)
            assert pages_in_cache(fd) > 0, "it would be seen"
        finally:
            os.close(fd)


def test_reading_goes_around_the_page_cache_where_the_file_system_can(tmp_path):
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError as error:
        pytest.skip(f"this file system has no O_DIRECT: {error}")
    with BlockStore(blocks(8), 3 * SIZE, str(tmp_path)) as store:
        assert store.file.is_direct


def test_a_block_that_cannot_be_written_whole_leaves_nothing_in_the_file(tmp_path, monkeypatch):
    def half(fd: int, buffer: mmap.mmap, _offset: int, size: int, place: int) -> None:
        with memoryview(buffer)[: size // 2] as part:
            os.pwritev(fd, [part], place)
        raise OSError(errno.EIO, "Input/output error")

    with BlockStore(blocks(4), 1000 * SIZE, str(tmp_path)) as store:
        monkeypatch.setattr(block_file, "_write_all", half)
        with pytest.raises(SpillError, match=r"cannot be kept in .*: Input/output error$"):
            store.set_share_on_disk(1.0)
        assert os.fstat(store.file.fd).st_size == 0
        assert all(same(data, i) for i, data in store)


def test_the_next_block_is_read_while_one_is_computed_on(tmp_path, monkeypatch):
    with BlockStore(blocks(4), 1000 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(1.0)
        filled = []
        read = StoredBlock.read
        monkeypatch.setattr(StoredBlock, "read", lambda *what: filled.append(what[0].name) or read(*what))
        reading = iter(store)
        next(reading)
        store._io.submit(int).result()  # All that was asked of the thread before is done.
        assert filled == ["block 0", "block 1"]
        reading.close()


def test_a_state_that_grows_is_read_whole_though_the_next_round_was_told_before_it_was_written(tmp_path):
    with BlockStore(blocks(4), 1000 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(1.0)
        for pages in (1, 40, 3):
            store.begin_round([0])
            go_on = threading.Event()
            used = store.begin(0)
            store._io.submit(go_on.wait)
            used.state["x"] = np.full(pages * PAGE // 8, float(pages))
            store.end(0)
            store.expect([0])
            go_on.set()
            store.begin_round([0])
            assert store.begin(0).state["x"].tolist() == [pages] * (pages * PAGE // 8)
            store.end(0)
        assert store.state(0)["x"][0] == 3
        store.set_share_on_disk(0.0)
        assert len(list(store)) == 4
        assert store.state(0)["x"][0] == 3


def test_the_share_climbs_to_the_fastest_and_is_found_anew_when_the_load_changes(tmp_path):
    with BlockStore(blocks(50), 1000 * SIZE, str(tmp_path)) as store:

        def rounds(best: float) -> float:
            for _ in range(40):
                before = store.share_on_disk
                assert len(list(store)) == 50
                store.round_took(1.0 + abs(before - best) * 5)
            return store.share_on_disk

        store.set_share_on_disk(0.5)
        assert rounds(0.2) == pytest.approx(0.2, abs=0.06)
        assert rounds(0.7) == pytest.approx(0.7, abs=0.06)


def test_a_block_that_is_to_go_to_disk_stays_while_it_is_used_and_its_new_state_is_not_lost(tmp_path):
    with BlockStore(blocks(4), 1000 * SIZE, str(tmp_path)) as store:
        go_on = threading.Event()
        store._io.submit(go_on.wait)
        store.begin_round([0])
        store.begin(0).state["x"] = np.zeros(3)
        store.lower_budget(1000 * SIZE)
        store.end(0)  # From now on it waits to be written.
        store.begin_round([0, 1])
        used = store.begin(0)
        go_on.set()
        store._io.submit(int).result()
        used.state["x"] += 7
        store.end(0)
        store._io.submit(int).result()
        assert store._blocks[0].block is None
        assert store.state(0)["x"].tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 1, 2, 3], [3, 2, 1, 0]),  # in another order
        ([1.0, 1.0, 2.0, 2.0], [-1.0, -1.0, 2.0, 2.0]),  # Only the highest bits change.
        ([2, 5, 7, 7], [3, 4, 7, 7]),  # Their sum is the same.
    ],
)
def test_a_state_on_disk_is_written_however_it_has_changed(tmp_path, before, after):
    given_block = Block("b", dict(block(0).data), {"x": np.array(before)})
    with BlockStore([given_block], 100 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(1.0)
        store.begin_round([0])
        store.begin(0).state["x"][:] = after
        store.end(0)
        assert store.state(0)["x"].tolist() == after


def test_rounds_that_take_about_as_long_do_not_move_blocks_to_disk(tmp_path):
    with BlockStore(blocks(50), 1000 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(0.3)
        for number in range(12):
            assert len(list(store)) == 50
            store.round_took(1.0 - 0.002 * number)  # always a little shorter
            assert store.share_on_disk <= 0.42, "one step, to look"
        assert store.share_on_disk <= 0.3


def test_a_share_that_memory_sets_stays_where_rounds_take_a_little_longer(tmp_path):
    with BlockStore(blocks(50), 28 * SIZE, str(tmp_path)) as store:
        least = store.share_on_disk
        assert 0.4 < least < 0.6
        shares = []
        for round_s in [1.0] * 10 + [1.15] * 10:  # less than it takes to look for another share
            assert len(list(store)) == 50
            store.round_took(round_s)
            shares.append(store.share_on_disk)
        assert set(shares[:10]) != {least}, "it looked for another"
        assert set(shares[10:]) == {least}


def test_results_that_lie_in_a_block_on_disk_are_copied(tmp_path):
    with BlockStore(blocks(4), 1000 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(1.0)
        store.begin_round([2])
        data, own = store.begin(0).data, np.arange(3.0)
        found = store.end(0, {"part": data["x"][:5], "own": own})
        assert not np.may_share_memory(found["part"], data["x"])
        assert found["part"].tolist() == [2.0] * 5
        assert found["own"] is own


def test_a_block_that_does_not_fit_into_the_budget_is_refused_by_name(tmp_path):
    with pytest.raises(SpillError, match=r"block 'block 1' is too large: 2 blocks of its size are 0.1 MiB, the memory"):
        BlockStore(blocks(4), SIZE + 1, str(tmp_path))
    with BlockStore(blocks(1), SIZE + 1, str(tmp_path)) as store:
        assert store.share_on_disk == 0.0


def test_empty_arrays_and_single_numbers_come_back_and_objects_are_refused(tmp_path):
    odd = {"none": np.empty((0, 3)), "one": np.array(7.5), "column": np.arange(12).reshape(3, 4)[:, 1]}
    with BlockStore([Block("odd", odd), Block("nothing", {})], 1000 * SIZE, str(tmp_path)) as store:
        store.set_share_on_disk(1.0)
        (_, found), (_, nothing) = store
        assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
            name: (array.shape, array.dtype) for name, array in odd.items()
        }
        assert all(np.array_equal(found[name], odd[name]) for name in odd)
        assert not nothing
        with pytest.raises(ValueError, match="read-only"):
            found["column"][0] = 1
    with pytest.raises(SpillError, match=r"block 'words': array 'w' has Python objects \(dtype object\)"):
        BlockStore([Block("words", {"w": np.array(["a", None])})], 1000 * SIZE, str(tmp_path))


def test_a_disk_without_room_is_refused_in_one_line_and_what_was_in_memory_stays(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with BlockStore(blocks(4), 1000 * SIZE, str(tmp_path)) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE + 1, limit[1]))
        try:
            with pytest.raises(SpillError, match=r"block 'block \d' of 0.1 MiB cannot be kept in .*: File too large$"):
                store.set_share_on_disk(1.0)
            assert os.fstat(store.file.fd).st_size == SIZE
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert all(same(data, i) for i, data in store)
        store.set_share_on_disk(1.0)
        assert all(same(data, i) for i, data in store)
    with pytest.raises(SpillError, match="cannot be kept in folder '/nothing': No such file or directory"):
        BlockStore(blocks(8), 3 * SIZE, "/nothing")


@pytest.mark.skipif(os.geteuid() != 0, reason="to mount a small disk needs root")
def test_a_full_disk_says_how_much_is_free(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=True)
    try:
        with pytest.raises(SpillError, match=r"block 'block \d+' of 0.1 MiB cannot be kept in .*: 0.0 MiB are free"):
            BlockStore(blocks(20), 3 * SIZE, str(tmp_path))
        assert os.statvfs(tmp_path).f_bfree == os.statvfs(tmp_path).f_blocks, "nothing is left"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


_MEASURED = """
import sys
import numpy as np
from hocket.runtimes.paramserver.algorithm import DataBlock
from hocket.runtimes.paramserver.block_store import BlockStore

MIB = 1 << 20

def peak_mib():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) / 1024

def blocks():
    for number in range(96):
        yield DataBlock(str(number), {"x": np.full(MIB // 8, number, float)})

before = peak_mib()
with BlockStore(blocks(), 16 * MIB, sys.argv[1]) as store:
    for share in (0.0, 0.9, 1.0, 0.3):
        store.set_share_on_disk(share)
        for _ in range(2):
            assert sum(data["x"][0] for _, data in store) == sum(range(96))
    print(peak_mib() - before, store.share_on_disk)
"""


def test_the_memory_budget_is_kept_as_the_kernel_counts_it(tmp_path):
    done = subprocess.run([sys.executable, "-c", _MEASURED, str(tmp_path)], capture_output=True, text=True, check=True)
    grew_mib, share = map(float, done.stdout.split())
    assert share == pytest.approx(1 - 14 / 96)
    assert grew_mib < 16 + 6, "and some MiB of Python itself"
