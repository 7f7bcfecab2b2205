"""What a file was read into is kept, and taken while the file is the same; nothing that happens to it does harm."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.runtimes.paramserver import input_cache
from hocket.runtimes.paramserver.algorithm import DataBlock, TrainingError
from hocket.runtimes.paramserver.file_blocks import FileBlocks, FileReading, ReadInput
from hocket.runtimes.paramserver.generators import generate
from hocket.runtimes.paramserver.input_cache import InputCache

KEY = {"blocks": 3}
WAIT_S = 60.0


class Source:
    """What blocks are made from: nothing."""

    def __init__(self) -> None:
        self.size, self.is_closed = 3 * 8000, False

    def close(self) -> None:
        self.is_closed = True


class Reader:
    """Reads a file, and counts how often."""

    def __init__(self) -> None:
        self.sources: list[Source] = []

    def __call__(self) -> ReadInput:
        self.sources.append(Source())
        return ReadInput({"rows": 7, "step": 0.1}, FileBlocks([1, 3, 5], made_block, self.sources[-1]))


def made_block(number: int) -> DataBlock:
    data = {"values": np.arange(1000.0) + number, "keys": np.array([[number], [2]], np.int32), "none": np.empty(0)}
    return DataBlock(f"block {number}", data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An input file that is worth keeping."""
    path = tmp_path / "data.txt"
    path.write_bytes(b"x" * (1 << 20))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "input"


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".input")


def must_be_read(found: ReadInput) -> None:
    assert found.facts == {"rows": 7, "step": 0.1}
    assert (type(found.facts["rows"]), type(found.facts["step"])) == (int, float)
    assert len(found.blocks) == 3
    assert found.blocks.total_bytes == 3 * 8000
    for number, block in zip((1, 3, 5), found.blocks, strict=True):
        expected = made_block(number)
        assert block.name == expected.name
        assert list(block.data) == list(expected.data)
        for name, array in expected.data.items():
            assert block.data[name].dtype == array.dtype
            assert block.data[name].tolist() == array.tolist()


def test_a_file_is_read_once(file: Path, folder: Path) -> None:
    read = Reader()
    for _ in range(3):
        must_be_read(InputCache(folder).blocks(file, KEY, read))
    assert len(read.sources) == 1
    assert read.sources[0].is_closed, "blocks come from the cache at once, and not from memory"
    assert [path.suffix for path in folder.iterdir()] == [".input"]


def test_what_another_user_has_kept_is_taken(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_utime(_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    read = Reader()
    InputCache(folder).blocks(file, KEY, read)
    monkeypatch.setattr(os, "utime", no_utime)
    must_be_read(InputCache(folder).blocks(file, KEY, read))
    assert len(read.sources) == 1


def test_another_file_or_key_is_read(file: Path, folder: Path) -> None:
    read, cache = Reader(), InputCache(folder)
    os.utime(file, (0, 0))
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: os.utime(file, ns=(0, 1)),
        lambda: file.write_bytes(b"y" * ((1 << 20) + 1)) and os.utime(file, ns=(0, 1)),
    ]
    for number, change in enumerate(changes, 1):
        change()
        cache.blocks(file, KEY, read)
        assert len(read.sources) == number
    cache.blocks(file, {**KEY, "blocks": 4}, read)
    other = file.with_name("other.txt")
    other.write_bytes(file.read_bytes())
    os.utime(other, ns=(0, 1))
    cache.blocks(other, KEY, read)
    assert len(read.sources) == len(entries(folder)) == 5
    link = file.with_name("link.txt")
    link.symlink_to(file)
    cache.blocks(link, KEY, read)
    assert len(read.sources) == 5


def test_small_files_and_missing_ones_are_not_kept(file: Path, folder: Path) -> None:
    read = Reader()
    file.write_bytes(b"x" * ((1 << 20) - 1))
    for path in (file, file, file.with_name("missing")):
        must_be_read(InputCache(folder).blocks(path, KEY, read))
    assert len(read.sources) == 3
    assert not folder.exists()


def test_what_cannot_be_read_is_not_kept(file: Path, folder: Path) -> None:
    def read() -> ReadInput:
        raise TrainingError("line 3: 'x' is no number")

    for _ in range(2):
        with pytest.raises(TrainingError, match="line 3"):
            InputCache(folder).blocks(file, KEY, read)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("at", [0, 8192, -1, -9, -41, -60])
def test_damaged_entries_are_read_again(file: Path, folder: Path, at: int, caplog: pytest.LogCaptureFixture) -> None:
    read, cache = Reader(), InputCache(folder)
    cache.blocks(file, KEY, read)
    (entry,) = entries(folder)
    content = bytearray(entry.read_bytes())
    content[at] ^= 1
    entry.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        found = cache.blocks(file, KEY, read)
        must_be_read(found)
    assert len(read.sources) == 2
    must_be_read(cache.blocks(file, KEY, read))
    must_be_read(cache.blocks(file, KEY, read))
    assert len(read.sources) == (3 if at >= 0 else 2), "a damaged block is found when blocks are there already"
    if at >= 0:
        assert f"'{entry}' is damaged" in caplog.text
        found.blocks.close()
        assert read.sources[1].is_closed


def test_a_shortened_entry_is_read_again(file: Path, folder: Path) -> None:
    read, cache = Reader(), InputCache(folder)
    cache.blocks(file, KEY, read)
    (entry,) = entries(folder)
    for length in (0, 10, 100, entry.stat().st_size - 1):
        os.truncate(entry, length)
        must_be_read(cache.blocks(file, KEY, read))
        (entry,) = entries(folder)
    assert len(read.sources) == 5


def test_blocks_stay_when_their_entry_is_removed(file: Path, folder: Path) -> None:
    read, cache = Reader(), InputCache(folder)
    found = cache.blocks(file, KEY, read)
    entries(folder)[0].unlink()
    must_be_read(found)
    assert len(read.sources) == 1


def test_where_nothing_can_be_written_the_file_is_read(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Reader()
    folder.parent.write_text("no folder")
    must_be_read(InputCache(folder).blocks(file, KEY, read))
    folder.parent.unlink()

    def full(part: Path, _given: ReadInput) -> None:
        part.write_text("some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(input_cache, "_write", full)
    must_be_read(InputCache(folder).blocks(file, KEY, read))
    assert len(read.sources) == 2
    assert not read.sources[1].is_closed
    assert not list(folder.iterdir())


def test_entries_that_were_not_used_for_longest_make_room(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, cache = Reader(), InputCache(folder)
    for number in range(3):
        cache.blocks(file, {"number": number}, read)
        for entry in entries(folder):
            os.utime(entry, (entry.stat().st_mtime - 10,) * 2)
    cache.blocks(file, {"number": 0}, read)  # used now
    size = entries(folder)[0].stat().st_size
    monkeypatch.setattr(InputCache, "_room", lambda _: 3.5 * size)
    cache.blocks(file, {"number": 3}, read)
    assert len(entries(folder)) == 3
    assert len(read.sources) == 4
    for number in (0, 2, 3):
        cache.blocks(file, {"number": number}, read)
    assert len(read.sources) == 4
    monkeypatch.setattr(InputCache, "_room", lambda _: 3 * 8000 - 1)
    must_be_read(cache.blocks(file, {"number": 4}, read))
    assert len(entries(folder)) == 3, "what is larger than the room is not kept, and nothing is removed for it"


def test_the_room_is_a_part_of_what_is_free(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = InputCache(folder)
    cache.blocks(file, KEY, Reader())
    size = entries(folder)[0].stat().st_size
    monkeypatch.setattr(input_cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10 * size}))
    assert cache._room() == pytest.approx(1.1 * size)


def test_what_killed_processes_left_is_removed_after_a_while(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    old, new = folder / "a.part", folder / "b.part"
    for path in (old, new):
        path.write_text("some")
    os.utime(old, (time.time() - 3700,) * 2)
    InputCache(folder).blocks(file, KEY, Reader())
    assert not old.exists()
    assert new.exists()


# -- several processes ----------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
from pathlib import Path
from tests.unit.runtimes.paramserver.test_input_cache import InputCache, KEY, Reader, input_cache, must_be_read
file, folder, log, go, paused_s = sys.argv[1:]
input_cache._SIGN_OF_LIFE_S, input_cache._PAUSED_S = 0.1, float(paused_s)
reader = Reader()
def read():
    with open(log, "a") as said:
        said.write(f"{os.getpid()}\\n")
    while not Path(go).exists():
        time.sleep(0.01)
    return reader()
must_be_read(InputCache(Path(folder)).blocks(Path(file), KEY, read))
"""


class Processes:
    """Processes that read the same file, each as soon as it is told to go on."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.log, self.go = file.with_name("log"), file.with_name("go")
        self.started: list[subprocess.Popen[bytes]] = []
        self._words = [sys.executable, "-c", PROGRAM, str(file), str(folder), str(self.log), str(self.go)]

    def start(self, paused_s: float = 60.0) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen([*self._words, str(paused_s)]))
        return self.started[-1]

    def readers(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def await_readers(self, count: int) -> None:
        until_s = time.monotonic() + WAIT_S
        while len(self.readers()) < count:
            assert time.monotonic() < until_s, f"{count} processes should read; {self.readers()} do"
            time.sleep(0.01)


@pytest.fixture
def processes(file: Path, folder: Path) -> Iterator[Processes]:
    found = Processes(file, folder)
    yield found
    for process in found.started:
        process.kill()
        process.wait()


def test_of_processes_that_start_together_one_reads(processes: Processes, folder: Path) -> None:
    started = [processes.start() for _ in range(3)]
    processes.await_readers(1)
    processes.go.touch()
    assert [process.wait(WAIT_S) for process in started] == [0, 0, 0]
    assert len(processes.readers()) == 1
    assert [path.suffix for path in folder.iterdir()] == [".input"]


def test_another_process_reads_if_the_first_is_killed(processes: Processes, folder: Path) -> None:
    first = processes.start()
    processes.await_readers(1)
    second = processes.start()
    first.kill()
    first.wait()
    processes.await_readers(2)
    processes.go.touch()
    assert second.wait(WAIT_S) == 0
    assert processes.readers() == [first.pid, second.pid]
    assert [path.suffix for path in folder.iterdir()] == [".input"]


def test_a_process_that_is_paused_while_it_reads_is_not_waited_for(processes: Processes, folder: Path) -> None:
    first = processes.start()
    processes.await_readers(1)
    first.send_signal(signal.SIGSTOP)
    second = processes.start(paused_s=0.5)
    processes.await_readers(2)
    processes.go.touch()
    assert second.wait(WAIT_S) == 0
    assert not entries(folder), "the entry is the first one's to write"
    first.send_signal(signal.SIGCONT)
    assert first.wait(WAIT_S) == 0
    assert len(entries(folder)) == 1


def test_a_process_that_reads_for_long_is_waited_for(processes: Processes) -> None:
    first, second = processes.start(), processes.start(paused_s=0.5)
    processes.await_readers(1)
    time.sleep(1.5)  # three times as long as it may give no sign of life
    processes.go.touch()
    assert (first.wait(WAIT_S), second.wait(WAIT_S)) == (0, 0)
    assert len(processes.readers()) == 1


# -- applications -----------------------------------------------------------------------------------------------------


def loaded(application: str, path: Path, reading: FileReading, **options: Any) -> tuple[Any, Any]:
    module = import_module(f"hocket.runtimes.paramserver.applications.{application}")
    return module.load(path, **{"blocks": 5, "batch": 2, "seed": 3, **options}, reading=reading)


@pytest.mark.parametrize(
    ("application", "scale", "others"),
    [
        ("nmf", 0.003, [{"blocks": 4}, {"batch": 3}, {"seed": 4}]),
        ("lda", 0.3, [{"blocks": 4}, {"seed": 4}]),
        ("mlr", 0.01, [{"blocks": 4}, {"batch": 3}, {"classes": 700}, {"zero_based": True}]),
        ("lasso", 0.01, [{"blocks": 4}, {"batch": 3}, {"zero_based": True}]),
    ],
)
def test_blocks_from_the_cache_are_those_that_were_read(
    application: str, scale: float, others: list[dict[str, Any]], tmp_path: Path, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(input_cache, "_LEAST_BYTES", 0)
    path = tmp_path / "data.txt"
    generate(application, path, scale=scale, seed=1)
    cache = InputCache(folder)
    expected, read = loaded(application, path, FileReading())
    for reading in (
        FileReading(cache=cache, chunk_bytes=100_000, folder=str(tmp_path)), FileReading(cache=cache),
    ):  # fmt: skip
        algorithm, blocks = loaded(application, path, reading)
        assert vars(algorithm) == vars(expected)
        assert len(blocks) == len(read)
        assert blocks.total_bytes == read.total_bytes
        for found, block in zip(blocks, read, strict=True):
            assert found.name == block.name
            assert {n: a.dtype for n, a in found.data.items()} == {n: a.dtype for n, a in block.data.items()}
            assert all(np.array_equal(found.data[name], array) for name, array in block.data.items())
    assert reading.done_bytes == 0, "the second time nothing is read"
    for number, options in enumerate(others, 2):
        reading = FileReading(cache=cache)
        loaded(application, path, reading, **options)
        assert reading.done_bytes == path.stat().st_size
        assert len(entries(folder)) == number
