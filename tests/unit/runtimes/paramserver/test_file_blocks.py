"""Blocks of a file that is read some lines at a time are those of one that is read at once."""

import random
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.runtimes.paramserver import column_spool
from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.column_spool import KeyCounts
from hocket.runtimes.paramserver.file_blocks import FileReading
from hocket.runtimes.paramserver.generators import generate


def loaded(application: str, path: Path, reading: FileReading) -> tuple[Any, Any]:
    application_module = import_module(f"hocket.runtimes.paramserver.applications.{application}")
    return application_module.load(path, 5, 2, seed=3, reading=reading)


@pytest.mark.parametrize(("application", "scale"), [("nmf", 0.0003), ("lda", 0.03), ("mlr", 0.001), ("lasso", 0.001)])
def test_blocks_do_not_depend_on_how_the_file_is_read(
    application: str, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.txt"
    generate(application, path, scale=scale, seed=1)
    lines = path.read_text().splitlines()
    head = 3 if application == "lda" else 0
    lines[head:] = random.Random(0).sample(lines[head:], len(lines) - head)
    path.write_text("\n".join(lines))  # The last line has no end.
    whole, at_once = loaded(application, path, FileReading())
    monkeypatch.setattr(column_spool, "ROWS_AT_ONCE", 100)
    reading = FileReading(chunk_bytes=1000, folder=str(tmp_path))
    parts, by_parts = loaded(application, path, reading)
    assert reading.done_bytes == path.stat().st_size
    assert vars(parts) == vars(whole)
    assert len(by_parts) == len(at_once) == 5
    assert by_parts.total_bytes > 0
    for found, expected in zip(by_parts, at_once, strict=True):
        assert found.name == expected.name
        assert {n: a.dtype for n, a in found.data.items()} == {n: a.dtype for n, a in expected.data.items()}
        assert all(np.array_equal(found.data[name], array) for name, array in expected.data.items())
    assert [block.name for block in by_parts[1:3]] == [block.name for block in at_once][1:3]
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"], "files have no names"
    by_parts.is_used_once = True
    by_parts.taken()


def test_an_error_far_into_the_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    for text, why in (
        ("1 2 3\n" * 500 + "1 2 x\n", "line 501, field 3: 'x' is not a number"),
        ("1 2 3\n" * 500 + "1 2 -3\n", "line 501, field 3: '-3' is below 0"),
        ("1 2 3\n" * 500 + "1 2 3 4\n" * 500, "line 501: it has 4 fields; the lines before it have 3"),
    ):
        path.write_text(text)
        with pytest.raises(TrainingError, match=why):
            loaded("nmf", path, FileReading(chunk_bytes=100))


def test_keys_are_counted_whatever_parts_they_come_in() -> None:
    rng = np.random.default_rng(0)
    keys, weights = rng.integers(0, 2**31, 50)[rng.integers(0, 50, 1000)], rng.integers(1, 9, 1000)
    counts = KeyCounts()
    for first in range(0, 1000, 70):
        counts.add(keys[first : first + 70], weights[first : first + 70])
    counts.merge()
    known, expected = np.unique(keys, return_counts=True)
    assert counts.keys.tolist() == known.tolist()
    assert counts.counts.tolist() == expected.tolist()
    assert counts.weights.tolist() == [int(weights[keys == key].sum()) for key in known]


def test_small_files_stay_in_memory_and_large_ones_are_read_in_small_parts() -> None:
    assert FileReading.within(None, 1 << 40, "/tmp").folder is None
    assert FileReading.within(1 << 30, 1 << 20, "/tmp").folder is None
    large = FileReading.within(1 << 30, 1 << 28, "/tmp")
    assert (large.folder, large.chunk_bytes) == ("/tmp", 8 << 20)
