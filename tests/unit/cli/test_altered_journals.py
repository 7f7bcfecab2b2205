"""Journals that were altered, with checksums to match: every command says in one line what is wrong, or works."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.typed import hocket

from hocket.control.journal.stored import checksum

ALTERATIONS = 60
VALUES = [0, -1, 5e-324, -5e-324, 1e308, nan, inf, -inf, 2**63, -(2**63), "", [], {}, None, True, "x" * 300]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "recorded.db"
    workload = "poisson?jobs=6&gap=100&elastic&epochs=3"
    done = hocket("simulate", workload, "--cluster", "1x4", "--policy", "las", "--journal", str(path))
    assert done.exit_code == 0, done.output
    return path


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path


def altered(journal: Path, path: tuple[Any, ...] | None, value: Any, row: int) -> tuple[Any, ...]:
    """Set a value in one cycle, the one at a path or at one that is drawn; the path."""
    with closing(sqlite3.connect(journal)) as db, db:
        rows = db.execute("SELECT n, value FROM cycle ORDER BY n").fetchall()
        number, kept = rows[row % len(rows)]
        cycle = msgspec.msgpack.decode(kept)
        path = path or random.Random(row).choice(list(leaves(cycle)))
        part = cycle
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        new = msgspec.msgpack.encode(cycle)
        db.execute("UPDATE cycle SET value = ?, crc = ? WHERE n = ?", (new, checksum(number, new), number))
        db.execute("DELETE FROM saved")
    return path


def test_whatever_is_altered_no_command_breaks(recorded: Path, tmp_path: Path) -> None:
    drawn = random.Random(7)
    values = [value for value in VALUES if not (isinstance(value, int) and abs(value) >= 2**63)]
    values += [2**63 - 1, -(2**63)]
    refused = 0
    for n in range(ALTERATIONS):
        journal = Path(shutil.copy(recorded, tmp_path / f"{n}.db"))
        value = drawn.choice(values)
        path = altered(journal, None, value, drawn.randrange(10**6))
        for words in (["whatif", str(journal), "--policy", "fifo"], ["replay", str(journal)]):
            done = hocket(*words)
            said = f"{words[0]} with {path} as {value!r}: {done.exception!r}"
            assert done.exception is None or isinstance(done.exception, SystemExit), said
            refused += done.exit_code == 2
        journal.unlink()
    assert refused > ALTERATIONS / 4


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("at_s",), -5.0, "its time is -5.0"),
        (("at_s",), nan, "its time is nan"),
        (("at_s",), 1e12, "over a hundred years"),
        (("events", 0, "at_s"), -1e18, "at_s is -1e+18"),
    ],
)
def test_a_time_that_cannot_be_is_named(recorded: Path, tmp_path: Path, path: Any, value: Any, words: str) -> None:
    journal = Path(shutil.copy(recorded, tmp_path / "altered.db"))
    altered(journal, path, value, 3)
    done = hocket("whatif", str(journal), "--policy", "fifo")
    assert done.exit_code == 2
    assert words in done.output
    assert "cycle 4" in done.output
