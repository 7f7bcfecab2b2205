"""Journals of runs: begun anew, kept, and read again. What concerns live ones stands in the files beside this."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

import msgspec
import pytest
from tests.unit.control.as_nobody import as_nobody

from hocket.control.journal import JournalError, MemoryJournal, SqliteJournal
from hocket.control.ports import FORMAT, Cycle, Header
from hocket.model.event import EpochEnded, JobSubmitted
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Node, Slice

HEADER = Header("fifo", {"x": 1}, (Node("n", 4),), 7, "test")
CYCLES = [
    Cycle(0.0, (JobSubmitted(0.0, Job("a")),), Plan((Partition("a", (Slice("n", (0,)),), (Tenant("a", (1,)),)),))),
    Cycle(0.1 + 0.2, (EpochEnded(0.3, "a", 1, {"acc": 1 / 3}),)),
    Cycle(2.0, (), Plan(memo={"k": [1, 2.5, None]}), ("partition 'z': no",)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "j.db"


def begun(path: Path) -> SqliteJournal:
    journal = SqliteJournal(path, HEADER)
    journal.extend(CYCLES)
    return journal


def edit(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_goes_in_comes_out(kind: str, path: Path) -> None:
    journal = MemoryJournal(HEADER) if kind == "memory" else SqliteJournal(path, HEADER)
    for cycle in CYCLES:
        journal.append(cycle)
    assert list(journal) == CYCLES
    assert len(journal) == 3
    assert journal.header == HEADER


def test_another_process_may_read_while_one_writes(path: Path) -> None:
    writer = begun(path)
    reader = SqliteJournal(path)
    assert reader.header == HEADER
    writer.append(CYCLES[0])
    assert list(reader) == [*CYCLES, CYCLES[0]]
    reader.close()
    writer.close()


def test_a_diverging_job_does_not_spoil_the_journal(path: Path) -> None:
    journal = SqliteJournal(path, HEADER)
    journal.append(Cycle(1.0, (EpochEnded(1.0, "a", 1, {"loss": float("nan"), "norm": float("inf")}),)))
    (cycle,) = journal
    (event,) = cycle.events
    assert isinstance(event, EpochEnded)
    assert event.metrics["norm"] == float("inf")
    assert event.metrics["loss"] != event.metrics["loss"]
    journal.close()


def test_a_journal_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(JournalError, match="does not exist"):
        SqliteJournal(path)


def test_a_run_does_not_overwrite_a_journal(path: Path) -> None:
    begun(path).close()
    with pytest.raises(JournalError, match="exists already; a run needs a new one"):
        SqliteJournal(path, HEADER)


@pytest.mark.parametrize("content", [b"no journal at all, but long enough to be looked at" * 50, b"\0" * 4096, b""])
def test_garbage_is_refused_by_name(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(JournalError, match=f"journal '{path}' cannot be opened"):
        SqliteJournal(path)


def test_another_database_is_refused(path: Path) -> None:
    edit(path, "CREATE TABLE songs (title TEXT)")
    with pytest.raises(JournalError, match="is not a journal of hocket"):
        SqliteJournal(path)


def test_a_journal_without_a_header_is_refused(path: Path) -> None:
    begun(path).close()
    edit(path, "DELETE FROM header")
    with pytest.raises(JournalError, match="cannot be opened"):
        SqliteJournal(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    begun(path).close()
    edit(path, "UPDATE header SET value = ?", msgspec.json.encode({"policy": "x", "format": FORMAT + 1}))
    with pytest.raises(JournalError, match=f"has format {FORMAT + 1}, this hocket reads up to {FORMAT}"):
        SqliteJournal(path)


def test_a_cycle_that_cannot_be_read_is_named(path: Path) -> None:
    begun(path).close()
    edit(path, "UPDATE cycle SET value = ? WHERE n = 2", b"\x81")
    journal = SqliteJournal(path)
    with pytest.raises(JournalError, match=f"journal '{path}', cycle 2: "):
        list(journal)
    journal.close()


def test_a_truncated_journal_is_refused(path: Path) -> None:
    journal = begun(path)
    journal.extend(CYCLES * 500)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(JournalError, match=f"journal '{path}'"):  # noqa: PT012 - where it breaks is SQLite's affair
        cut = SqliteJournal(path)
        len(cut)
        list(cut)


def test_a_file_that_may_not_be_written_is_refused_by_name() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.db"
        begun(path).close()
        os.chmod(path, 0o444)
        os.chmod(folder, 0o555)
        try:
            with as_nobody():
                journal = SqliteJournal(path)
                assert (journal.header, list(journal)) == (HEADER, CYCLES), "reading it is no harm"
                with pytest.raises(JournalError, match=f"journal '{path}' cannot be written: "):
                    journal.append(CYCLES[0])
                journal.close()
                with pytest.raises(JournalError, match="cannot be opened"):
                    SqliteJournal(Path(folder) / "new.db", HEADER)
        finally:
            os.chmod(folder, 0o755)


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be opened"):
        SqliteJournal(tmp_path)
