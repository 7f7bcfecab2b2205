"""Training with input on disk: the same to the last bit, within the memory budget, and what cannot be is said."""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtimes.paramserver.least_squares import (
    LazyBlocks,
    LeastSquares,
    Mean,
    SparseLeastSquares,
    dense_blocks,
    on_hosts,
    sparse_blocks,
    trained,
)
from tests.unit.runtimes.paramserver.turns import LeaveAfter

from hocket.runtimes.paramserver import host_blocks, memory_budget, model_memory, training
from hocket.runtimes.paramserver.algorithm import Array, DataBlock, TrainingError
from hocket.runtimes.paramserver.block_file import is_in_memory
from hocket.runtimes.paramserver.host_blocks import SpillOptions
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.memory_budget import resident_bytes
from hocket.runtimes.paramserver.pull_plan import ArrayLayout
from hocket.runtimes.paramserver.stored_block import StoredBlock
from hocket.runtimes.paramserver.training import EpochEnd, Paused, Trained, train
from hocket.runtimes.paramserver.worker_pool import WorkerPool

PLENTY = 1 << 40


@pytest.fixture
def disk() -> Iterator[str]:
    """A folder that is on a disk, which pytest's own need not be."""
    found = next((f for f in (tempfile.gettempdir(), "/var/tmp", os.getcwd()) if not is_in_memory(f)), None)
    if found is None:
        pytest.skip("all folders for temporary files are in memory")
    with tempfile.TemporaryDirectory(dir=found) as folder:
        yield folder


class WithHistory(LeastSquares):
    """Its state has all that may happen to one: arrays that change in place, are new, swap places, grow or go."""

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        found = dict(super().compute(block, params))
        state, times = block.state, int(block.state["seen"][0])
        state.setdefault("now", np.zeros(700))
        state.setdefault("last", np.zeros(700))
        state["now"], state["last"] = state["last"], state["now"]
        state["now"][:] = 0.3 * state["now"] + 0.5 * state["last"] + float(params["weights"].sum())
        if times % 3 == 0:
            state["rare"] = np.arange(100.0 * times)
        elif times % 3 == 1:
            state.pop("rare", None)
        found["weights"] = found["weights"] + 1e-3 * np.sin(state["now"][0] + state["last"][1])
        return found

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        block.state["asked"] = block.state.get("asked", np.zeros(1)) + 1
        return super().objective(block, params) + 1e-3 * float(block.state["asked"][0])


def spilled(folder: str, share: float | None, memory: int = PLENTY) -> dict[str, Any]:
    return {"spill": SpillOptions(memory, folder, share)}


def same(found: Trained, expected: Trained) -> bool:
    return found.objective == expected.objective and all(
        np.array_equal(found.model[name], expected.model[name]) for name in expected.model
    )


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch", [5, 12])
def test_any_share_on_disk_gives_the_same_to_the_last_bit(disk: str, workers: int, batch: int) -> None:
    options: dict[str, Any] = {"epochs": 8, "batch": batch}
    expected = trained(WithHistory(), dense_blocks(12), **options)
    for share in (0.0, 0.4, 1.0):
        found = trained(WithHistory(), dense_blocks(12), workers=workers, **options, **spilled(disk, share))
        assert same(found, expected), share
        assert found.spilled is not None
        assert found.spilled.share == pytest.approx(share, abs=0.1)
    assert not os.listdir(disk)


class GivesItsData(LeastSquares):
    """What it returns lies in its block: it must be there when the buffer has another block in it."""

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        del params
        return {"weights": block.data["x"][0]}


def test_an_update_may_be_part_of_the_block(disk: str) -> None:
    expected = trained(GivesItsData(), dense_blocks(12), batch=1)
    assert same(trained(GivesItsData(), dense_blocks(12), batch=1, **spilled(disk, 1.0)), expected)


def test_it_is_paused_and_resumed_with_another_share_and_on_other_hosts(disk: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 6, "batch": 5, "checkpoint": tmp_path / "saved"}
    expected = trained(WithHistory(), dense_blocks(12), epochs=6, batch=5)
    with pytest.raises(Paused):
        trained(WithHistory(), dense_blocks(12), **options, turns=LeaveAfter(4), **spilled(disk, 0.7))
    with pytest.raises(Paused):
        trained(WithHistory(), dense_blocks(12), **options, turns=LeaveAfter(8), **spilled(disk, 0.2))
    assert same(trained(WithHistory(), dense_blocks(12), **options), expected)

    def two_hosts(share: float | None, folder: str) -> Trained:
        more = spilled(disk, share) if share is not None else {}

        def run(at: LaunchVariables) -> Trained:
            where = tmp_path / folder
            return train(WithHistory(), dense_blocks(12), launch=at, workers=2, epochs=6, checkpoint=where, **more)

        found = on_hosts(2, run)[0]
        assert isinstance(found, Trained), found
        return found

    assert same(two_hosts(0.5, "spilled"), two_hosts(None, "in memory"))


_MEASURED = """
import sys
from hocket.runtimes.paramserver.memory_budget import peak_resident_bytes
from hocket.runtimes.paramserver.host_blocks import SpillOptions
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.training import train
from hocket.runtimes.paramserver import host_blocks, memory_budget, model_memory, training
from tests.unit.runtimes.paramserver.least_squares import LazyBlocks, Mean

host_blocks.forget_peak = lambda: False  # The peak of all is looked at here.
budget = int(sys.argv[2]) << 20
trained = train(Mean(), LazyBlocks(128, 1 << 20), workers=2, epochs=2, batch=32, launch=LaunchVariables(),
                spill=SpillOptions(budget, sys.argv[1]))
print(peak_resident_bytes() / (1 << 20), trained.spilled.share, trained.objective)
"""


def test_a_run_whose_data_are_three_times_the_budget_stays_within_it(disk: str) -> None:
    budget_mib = 64  # of which Python itself takes a half; 128 MiB of data, 64 of states
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, disk, str(budget_mib)], capture_output=True, text=True, check=True
    )
    peak_mib, share, objective = map(float, done.stdout.split())
    expected = trained(Mean(), [LazyBlocks(128, 800)[i] for i in range(128)], epochs=2, batch=32)
    assert objective == pytest.approx(expected.objective)
    assert 0.7 * budget_mib < peak_mib < budget_mib
    assert share > 0.7


_MODEL = """
import sys
from hocket.runtimes.paramserver import host_blocks, memory_budget, model_memory, training
from hocket.runtimes.paramserver.host_blocks import SpillOptions
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.memory_budget import peak_resident_bytes
from hocket.runtimes.paramserver.training import train
from tests.unit.runtimes.paramserver.least_squares import Counters, LazyBlocks

host_blocks.forget_peak = lambda: False
trained = train(Counters(32 * 1024, 64), LazyBlocks(64, 4096), workers=2, epochs=2, batch=16, launch=LaunchVariables(),
                spill=SpillOptions(int(sys.argv[2]) << 20, sys.argv[1]), objective_every=0)
peak = peak_resident_bytes() / (1 << 20)
print(peak, float(trained.model["counts"][::512, 0].sum()), bool((trained.model["counts"][:512] == 2).all()))
"""


def test_a_model_larger_than_the_budget_is_kept_on_disk(disk: str) -> None:
    budget_mib = 80  # of which Python itself takes a half; the model has 64 MiB, and so have the sums of updates
    done = subprocess.run(
        [sys.executable, "-c", _MODEL, disk, str(budget_mib)], capture_output=True, text=True, check=True
    )
    peak_mib, total, is_right = done.stdout.split()
    assert (float(total), is_right) == (2 * sum(range(1, 65)), "True")
    assert float(peak_mib) < budget_mib
    assert not os.listdir(disk)


@pytest.mark.parametrize(("algorithm", "blocks"), [(WithHistory, dense_blocks), (SparseLeastSquares, sparse_blocks)])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_model_on_disk_gives_the_same_to_the_last_bit(
    disk: str, algorithm: Any, blocks: Any, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(at: LaunchVariables, **more: Any) -> Trained:
        return train(algorithm(), blocks(), launch=at, workers=2, epochs=5, batch=3, **more)

    expected = on_hosts(hosts, run)[0]
    monkeypatch.setattr(training, "is_too_large", lambda *_: True)
    monkeypatch.setattr(model_memory, "_FULL", 0.0)  # Pages are given up all the time.
    found = on_hosts(hosts, lambda at: run(at, **spilled(disk, 1.0)))[0]
    assert same(found, expected)  # type: ignore[arg-type]


def test_an_array_that_comes_while_pages_are_given_up_harms_nothing(disk: str) -> None:
    class OneComes(weakref.WeakKeyDictionary[Any, int]):
        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                coming = threading.Thread(target=lambda: arrays.append(memory.empty(layout, 9)))
                coming.start()
                coming.join(0.05)  # It may have to wait.
                yield each

    memory, layout = model_memory.ModelMemory(), ArrayLayout.of(np.zeros(9))
    memory.spill(disk, 1 << 40)
    try:
        arrays = [memory.empty(layout, 9)]
        memory._files = OneComes(memory._files)
        memory.give_up()
    finally:
        memory.close()


def test_a_model_that_the_budget_has_no_room_for_even_so_is_refused(disk: str) -> None:
    class Large(LeastSquares):
        def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
            return {**super().init(rng), "much": np.ones(resident_bytes() // 8)}

    why = r"^the memory budget is \d+ MiB: with the model of \d+ MiB that init\(\) makes this process has \d+ MiB$"
    with pytest.raises(TrainingError, match=why):
        trained(Large(), dense_blocks(), spill=SpillOptions(int(1.5 * resident_bytes()), disk))


def test_blocks_go_to_disk_when_others_take_the_memory_of_the_cgroup_and_come_back(
    disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [PLENTY]
    monkeypatch.setattr(host_blocks, "room_in_cgroup_bytes", lambda: room[0])
    monkeypatch.setattr(host_blocks, "_LOOK_S", 0.0)
    shares = []

    def on_epoch(end: EpochEnd) -> None:
        assert end.spilled is not None
        shares.append(end.spilled.share)
        room[0] = 0 if 2 <= end.epoch < 5 else PLENTY

    expected = trained(WithHistory(), dense_blocks(12), epochs=12)
    found = trained(WithHistory(), dense_blocks(12), epochs=12, on_epoch=on_epoch, **spilled(disk, None, 64 << 30))
    assert same(found, expected)
    assert shares[1] == 0.0
    assert shares[4] == 1.0
    assert min(shares[6:]) == 0.0


def test_blocks_go_to_disk_in_the_midst_of_an_epoch_when_memory_is_short(
    disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [PLENTY]
    monkeypatch.setattr(host_blocks, "room_in_cgroup_bytes", lambda: room[0])
    monkeypatch.setattr(host_blocks, "_LOOK_S", 0.0)
    pool = WorkerPool(1)
    blocks = host_blocks.SpilledBlocks(enumerate(dense_blocks(12)), SpillOptions(64 << 30, disk), 1)
    try:
        for left, least, most in ((PLENTY, 0.0, 0.0), (0, 0.9, 1.0)):
            room[0] = left
            names: dict[int, str] = {}
            blocks.each(pool, range(12), lambda _, block: block.name, names.__setitem__)
            assert list(names.values()) == [f"block {i}" for i in range(12)]
            blocks._store._io.submit(int).result()  # All that was to be written is.
            assert least <= blocks.spilled.share <= most
    finally:
        pool.close()
        blocks.close()


def test_a_file_that_may_not_grow_fails_with_the_name_of_the_block(disk: str) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limit[1]))
    try:
        with pytest.raises(TrainingError, match=r"^block 'block \d+' of 0.0 MiB cannot be kept in folder .*: File too"):
            trained(LeastSquares(), dense_blocks(12), **spilled(disk, 1.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not os.listdir(disk)


def test_the_room_of_a_cgroup_is_that_of_the_tightest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder(name: str, limit: str, used: int, stat: str) -> Path:
        made = tmp_path / name
        made.mkdir()
        (made / "memory.max").write_text(limit)
        (made / "memory.current").write_text(f"{used}\n")
        (made / "memory.stat").write_text(stat)
        return made

    folders = [folder("a", "max\n", 5, ""), folder("b", "900\n", 700, "anon 600\ninactive_file 50\nactive_file 20\n")]
    monkeypatch.setattr(memory_budget, "_folders", lambda: folders)
    assert memory_budget.room_in_cgroup_bytes() == 270
    monkeypatch.setattr(memory_budget, "_folders", lambda: folders[:1])
    assert memory_budget.room_in_cgroup_bytes() is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (SpillOptions(1 << 20), r"^the memory budget is 1 MiB: this process needs \d+ MiB before it has any input$"),
        (SpillOptions(PLENTY, "/nothing"), "^spill folder '/nothing' is not there$"),
        (SpillOptions(PLENTY, "/proc/self"), "^spill folder '/proc/self' is not writable$"),
        (SpillOptions(PLENTY, "/dev/shm"), r"^spill folder '/dev/shm' is in memory itself \(tmpfs\): choose one on a"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(options: SpillOptions, why: str) -> None:
    if options.folder == "/proc/self" and os.access("/proc/self", os.W_OK):
        pytest.skip("this user may write everywhere")
    if options.folder == "/dev/shm" and not is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is not in memory here")
    with pytest.raises(TrainingError, match=why):
        trained(LeastSquares(), dense_blocks(), spill=options)


def test_a_disk_with_too_little_room_is_refused_before_anything_is_written(
    disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_blocks, "resident_bytes", lambda: 0)
    huge = LazyBlocks(100, 1 << 16)
    huge.total_bytes = 1 << 60
    with pytest.raises(TrainingError, match=r"MiB of input do not fit into memory, and folder .* has [\d.]+ MiB free"):
        trained(Mean(), huge, spill=SpillOptions(1 << 20, disk))  # type: ignore[arg-type]
    assert not os.listdir(disk)


def test_a_damaged_block_fails_with_its_name(disk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StoredBlock.read

    def damaged(self: StoredBlock, file: Any, slot: Any) -> None:
        if self.name == "block 7":
            os.pwrite(os.open(f"/proc/self/fd/{file.fd}", os.O_RDWR), b"\xff", self._data_at or 0)
        plain(self, file, slot)

    monkeypatch.setattr(StoredBlock, "read", damaged)
    with pytest.raises(TrainingError, match=r"^block 'block 7': what was read from disk is not what was written"):
        trained(LeastSquares(), dense_blocks(12), **spilled(disk, 1.0))
