"""`hocket paramserver`: what it prints and writes, and what it refuses."""

import errno
import json
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from tests.unit.cli.typed import hocket, refused


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    path = tmp_path / "ratings.txt"
    path.write_text("".join(f"{u} {i} {1 + (u + i) % 4}\n" for u in range(12) for i in range(6)))
    return path


def test_it_trains_prints_epochs_and_writes_the_model(ratings: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.npz"
    common = ("paramserver", "nmf", "--data", str(ratings), "--epochs", "3", "--rank", "4", "--workers", "1")
    done = hocket(*common, "--out", str(out), "--objective-every", "2", "--checkpoint", str(tmp_path / "saved"))
    assert done.exit_code == 0, done.output
    second, third = done.stdout.splitlines()
    assert second.startswith("epoch 2/3 objective=")
    assert third.startswith("epoch 3/3 objective=")
    silent = hocket(*common, "--objective-every", "0")
    assert silent.stdout == "epoch 3/3 iterations=9\n"
    with np.load(out) as model:
        assert model["items"].shape == (6, 4)
    spilled = hocket(*common, "--objective-every", "2", "--memory", "8GiB")
    assert spilled.stdout == done.stdout
    again = hocket(*common, "--checkpoint", str(tmp_path / "saved"))
    assert (again.exit_code, again.stdout) == (0, "")  # All is done already.
    rows = [json.loads(line) for line in hocket(*common, "--json").stdout.splitlines()]
    assert [(row["epoch"], row["epochs"]) for row in rows] == [(1, 3), (2, 3), (3, 3)]
    assert rows[2]["objective"] < rows[0]["objective"]
    assert rows[0]["times"]["comp_s"] > 0


def test_a_model_that_cannot_be_written_leaves_no_file_and_names_it(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: BinaryIO, **_arrays: object) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    out = tmp_path / "model.npz"
    done = hocket("paramserver", "nmf", "--data", str(ratings), "--epochs", "1", "--workers", "1", "--out", str(out))
    assert (done.exit_code, done.stderr) == (2, f"hocket: model '{out}' cannot be written: No space left on device\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ratings.txt"]


def test_input_that_asks_for_more_memory_than_there_is_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ratings.txt"
    path.write_text("1 2147483647 3\n")
    said = refused("paramserver", "nmf", "--data", str(path), "--rank", "4096", "--epochs", "1")
    assert said.startswith(f"hocket: '{path}' needs more memory than there is: Unable to allocate 64.0 TiB")


def test_generated_data_can_be_trained_on(tmp_path: Path) -> None:
    data = tmp_path / "bags.txt"
    made = hocket("paramserver", "generate", "lda", "--out", str(data), "--scale", "0.01")
    assert made.stdout == f"{data}: 20 examples, a model of 50 rows\n"
    done = hocket("paramserver", "lda", "--data", str(data), "--epochs", "10", "--workers", "1", "--topics", "3")
    assert [line.split()[1] for line in done.stdout.splitlines() if "objective" in line] == ["5/10", "10/10"]


def test_input_is_kept_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, own, chosen = tmp_path / "ratings.txt", tmp_path / "home" / "hocket" / "input", tmp_path / "chosen"
    data.write_text("".join(f"{u} {i} {1 + (u + i) % 4}.00000000000\n" for u in range(1000) for i in range(60)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    words = ("paramserver", "nmf", "--data", str(data), "--epochs", "2", "--rank", "2", "--workers", "1")
    read = hocket(*words, "--input-cache", "none").stdout
    assert not own.exists()
    assert "epoch 2/2 objective=" in read
    for folder, more in ((own, ()), (chosen, ("--input-cache", str(chosen)))):
        for memory in ((), ("--memory", "8GiB")):
            assert hocket(*words, *more, *memory).stdout == read
        (entry,) = folder.iterdir()
        before = entry.stat().st_ino
        assert hocket(*words, *more).stdout == read
        assert entry.stat().st_ino == before
    said = refused(*words, "--input-cache", str(data))
    assert said == f"hocket: --input-cache '{data}' cannot be used: File exists\n"


def test_what_is_wrong_is_said_in_one_line(ratings: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("0 1:2\n7 1:3\n")
    train = ("--data", str(ratings), "--workers", "1")
    for words, why in (
        (("nmf", "--data", str(tmp_path / "none")), "none: No such file or directory"),
        (
            ("mlr", "--data", str(bad), "--classes", "3"),
            "bad.txt, line 2, field 1: label 7 is not a whole number within 0",
        ),
        (("nmf", *train, "--out", str(tmp_path / "model.txt")), "must end in .npz"),
        (("nmf", *train, "--out", str(tmp_path / "no" / "model.npz")), "--out"),
        (("nmf", *train, "--checkpoint-every", "soon"), "--checkpoint-every"),
        (("nmf", *train, "--memory", "some"), "--memory must be an amount of memory such as 512M or 8G, not 'some'"),
        (("nmf", *train, "--memory", "1M"), "the memory budget is 1 MiB: this process needs"),
        (("nmf", *train, "--memory", "8G", "--spill-dir", "/nothing"), "spill folder '/nothing' is not there"),
        (("lda", *train, "--alpha", "0"), "--alpha must be above 0, not 0"),
        (("generate", "nmf", "--out", str(tmp_path / "x"), "--scale", "0"), "scale must be above 0"),
    ):
        assert why in refused("paramserver", *words)
    (tmp_path / "saved" / "iteration-000000001").mkdir(parents=True)
    assert "cannot be read" in refused("paramserver", "nmf", *train, "--checkpoint", str(tmp_path / "saved"))
