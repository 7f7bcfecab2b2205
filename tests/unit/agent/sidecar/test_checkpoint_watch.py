"""A save is seen when files change and stay as they are; what was there before, or is half written, is none."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from hocket.agent.sidecar.checkpoint_watch import CheckpointWatch


class Folder:
    """A checkpoint folder, a working directory, and files whose times of change are made up."""

    def __init__(self, root: Path) -> None:
        self.saves, self.cwd = root / "checkpoints", root / "work"
        self.saves.mkdir()
        self.cwd.mkdir()
        self._ticks = 0

    def write(self, path: Path, text: str = "state") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._ticks += 1
        os.utime(path, ns=(0, self._ticks))

    def watch(self, path: str = "") -> CheckpointWatch:
        return CheckpointWatch(str(self.saves), path, str(self.cwd), 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_file_that_stays_as_it_is_from_one_look_to_the_next_is_a_save(folder: Folder) -> None:
    watch = folder.watch()
    assert not watch.look(1.0)
    folder.write(folder.saves / "model.pt")
    assert not watch.look(2.0)  # It may still be written.
    assert watch.look(3.0)
    assert watch.saved_s == 3.0
    assert not watch.look(50.0)


def test_a_file_that_grows_is_not_saved_yet(folder: Folder) -> None:
    watch = folder.watch()
    for n in range(1, 5):
        folder.write(folder.saves / "model.pt", "x" * n)
        assert not watch.look(float(n))
    assert watch.look(5.0)


def test_a_file_that_is_replaced_before_every_look_was_saved(folder: Folder) -> None:
    watch = folder.watch()
    said = []
    for n in range(1, 8):
        folder.write(folder.saves / "part", "x" * n)
        (folder.saves / "part").rename(folder.saves / "model.pt")
        said.append(watch.look(float(n)))
    assert said == [False, True, False, False, False, False, False]  # the first time when the next one replaced it
    assert watch.saved_s == 7.0
    assert watch.next_s >= 12.0  # later if the disk was slow to answer


def test_a_file_that_is_written_again_before_every_look_was_saved_unless_it_only_grows(folder: Folder) -> None:
    watch = folder.watch()
    folder.write(folder.saves / "model.pt", "one")
    assert not watch.look(1.0)
    folder.write(folder.saves / "model.pt", "two")
    assert watch.look(2.0)
    growing = CheckpointWatch(str(folder.saves), "", str(folder.cwd), 0.0)
    for n in range(4, 9):
        folder.write(folder.saves / "model.pt", "x" * n)
        assert not growing.look(float(n))
    folder.write(folder.saves / "other.pt", "x")  # Another file says nothing about whether the first is whole.
    assert not growing.look(9.0)
    assert growing.saved_s is None


def test_replacing_what_was_there_before_is_no_save_yet(folder: Folder) -> None:
    folder.write(folder.saves / "model.pt", "old")
    watch = folder.watch()
    folder.write(folder.saves / "model.pt", "ne")
    assert not watch.look(1.0)
    assert watch.saved_s is None


def test_what_was_there_before_and_empty_files_are_no_saves(folder: Folder) -> None:
    folder.write(folder.saves / "model.pt")
    watch = folder.watch()
    folder.write(folder.saves / "lock", "")
    assert not any(watch.look(float(n)) for n in range(1, 4))
    assert not watch.look_last(5.0, whole=True)
    assert watch.saved_s is None


def test_an_overwritten_file_of_the_same_size_is_a_save(folder: Folder) -> None:
    folder.write(folder.saves / "model.pt", "old")
    watch = folder.watch()
    folder.write(folder.saves / "model.pt", "new")
    assert [watch.look(1.0), watch.look(2.0)] == [False, True]


def test_files_in_folders_count_and_a_path_or_pattern_of_the_jobs_own_too(folder: Folder) -> None:
    for path, file in (
        ("", folder.saves / "step-10" / "rank0" / "weights"),
        ("out/last.pt", folder.cwd / "out" / "last.pt"),
        ("runs", folder.cwd / "runs" / "a" / "b.bin"),
        ("ckpt-*.pt", folder.cwd / "ckpt-7.pt"),
    ):
        watch = folder.watch(path)
        folder.write(file)
        assert [watch.look(1.0), watch.look(2.0)] == [False, True], path


def test_other_files_are_no_saves(folder: Folder) -> None:
    watch = folder.watch("ckpt-*.pt")
    folder.write(folder.cwd / "log.txt")
    assert not any(watch.look(float(n)) for n in range(1, 4))


def test_many_saves_are_reported_now_and_then_and_the_last_one_in_the_end(folder: Folder) -> None:
    watch = folder.watch()
    said = []
    for n in range(1, 100):
        if n % 3 == 0:
            folder.write(folder.saves / "model.pt", str(n))
        if watch.look(float(n)):
            said.append(n)
    assert len(said) == 4
    assert all(later - sooner >= 30 for sooner, later in pairwise(said))
    folder.write(folder.saves / "model.pt", "the last")
    assert watch.look_last(100.0, whole=True)
    assert watch.saved_s == 100.0
    assert not watch.look_last(101.0, whole=True)


def test_what_a_killed_process_wrote_last_does_not_count(folder: Folder) -> None:
    watch = folder.watch()
    folder.write(folder.saves / "model.pt", "half of")
    assert not watch.look_last(1.0, whole=False)
    assert watch.saved_s is None


def test_until_the_first_save_it_looks_often(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.agent.sidecar.checkpoint_watch.time.perf_counter", lambda: 0.0)  # It takes no time.
    watch = folder.watch()
    watch.look(10.0)
    assert watch.next_s < 12
    folder.write(folder.saves / "model.pt")
    watch.look(11.0)
    watch.look(12.0)
    assert watch.next_s > 14


def test_a_folder_that_is_gone_is_no_trouble(folder: Folder) -> None:
    folder.saves.rmdir()
    watch = folder.watch("nowhere/at-all")
    assert not watch.look(1.0)
    assert not watch.look_last(2.0, whole=True)
