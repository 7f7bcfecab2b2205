"""SQLite in trouble: a full disk, locks, files that were spoilt, moved or taken. Nothing acknowledged is lost."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.control.as_nobody import as_nobody

from hocket.control.journal import JournalError, JournalLost, SqliteJournal
from hocket.control.ports import Cycle, Header
from hocket.model.event import JobSubmitted
from hocket.model.job import Job

HEADER = Header("fifo")


def cycle(number: int, padding: int = 0) -> Cycle:
    return Cycle(float(number), (JobSubmitted(float(number), Job(f"j{number:04d}", command=("x" * padding,))),))


def held(path: Path, patience_s: float = 0.2) -> SqliteJournal:
    return SqliteJournal(path, HEADER, goes_on=True, patience_s=patience_s)


def read(path: Path) -> list[Cycle]:
    journal = SqliteJournal(path)
    try:
        return list(journal)
    finally:
        journal.close()


def filled(journal: SqliteJournal) -> tuple[list[Cycle], str]:
    """Append until it cannot; what was acknowledged, and what was said then."""
    kept: list[Cycle] = []
    while len(kept) < 10_000:
        one = cycle(len(kept) + 1, 2000)
        try:
            journal.append(one)
        except JournalError as error:
            return kept, str(error)
        kept.append(one)
    raise AssertionError("it is never full")


def goes_on(journal: SqliteJournal, kept: list[Cycle]) -> None:
    """With room again, appending goes on where it stopped."""
    assert list(journal) == kept, "what was acknowledged, and no more"
    assert journal.recover() == len(kept)
    for _ in range(3):
        kept.append(cycle(len(kept) + 1, 2000))
        journal.append(kept[-1])
    journal.close()
    assert read(journal.path) == kept


# -- a full disk --------------------------------------------------------------------------------------------


def test_a_full_database_refuses_loses_nothing_and_goes_on_with_room_again(tmp_path: Path) -> None:
    journal = held(tmp_path / "j.db")
    journal._open().execute("PRAGMA max_page_count = 60")  # SQLite's own limit gives the error of a full disk
    kept, said = filled(journal)
    assert said == f"journal '{journal.path}' cannot be written: database or disk is full"
    assert kept
    journal._open().execute("PRAGMA max_page_count = 1000000")
    goes_on(journal, kept)


def test_a_full_disk_refuses_loses_nothing_and_goes_on_with_room_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk of its own needs the right to mount; SQLite's own limit is tested in any case")
    try:
        (disk / "others").write_bytes(b"x" * 1_000_000)
        journal = held(disk / "j.db")
        kept, said = filled(journal)
        assert f"journal '{journal.path}' cannot be written: " in said
        with pytest.raises(JournalError, match="cannot be written"):
            journal.save(b"x" * 3_000_000)
        (disk / "others").unlink()
        goes_on(journal, kept)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# -- locks --------------------------------------------------------------------------------------------------

LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_database_that_another_process_has_locked_is_refused_after_a_while(tmp_path: Path) -> None:
    journal = held(tmp_path / "j.db")
    journal.append(cycle(1))
    command = [sys.executable, "-c", LOCKER, str(journal.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(JournalError) as found:
            journal.append(cycle(2))
        said = f"journal '{journal.path}' cannot be written: database is locked by another process, for more than 0.2 s"
        assert str(found.value) == said
        assert list(journal) == [cycle(1)], "reading it goes on"
        other.communicate()
    goes_on(journal, [cycle(1)])


def test_a_journal_that_lost_its_lock_file_to_another_process_appends_no_more(tmp_path: Path) -> None:
    first = held(tmp_path / "j.db")
    first.append(cycle(1))
    (tmp_path / "j.db.lock").unlink()
    second = held(tmp_path / "j.db")
    second.append(cycle(2))
    for _ in range(2):
        with pytest.raises(JournalLost, match=f"it was taken over by the controller with pid {os.getpid()} "):
            first.append(cycle(2))
    first.close()
    second.append(cycle(3))
    second.close()
    assert read(tmp_path / "j.db") == [cycle(1), cycle(2), cycle(3)]


def test_a_lock_is_found_by_another_path_too_and_leaves_no_file(tmp_path: Path) -> None:
    journal = held(tmp_path / "j.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "j.db")
    with pytest.raises(JournalError, match=r"link.db' is held by the controller with pid "):
        held(tmp_path / "link.db")
    journal.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["j.db", "link.db"]


def test_a_lock_file_that_was_left_behind_stops_no_controller(tmp_path: Path) -> None:
    (tmp_path / "j.db.lock").write_text("what is this?")
    journal = held(tmp_path / "j.db")
    (tmp_path / "j.db.lock").write_text("")
    with pytest.raises(JournalError, match="held by another process, which has not written its name yet"):
        held(tmp_path / "j.db")
    journal.close()


def compete(path: Path, start: multiprocessing.synchronize.Event, won: multiprocessing.Queue[int]) -> None:
    start.wait()
    for _ in range(20):
        try:
            journal = SqliteJournal(path, HEADER, goes_on=True)
        except JournalError:
            continue
        number = len(journal)
        journal.append(cycle(number + 1))
        won.put(number + 1)
        journal.close()


@pytest.mark.slow
def test_of_several_that_come_at_once_one_has_it_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, won = context.Event(), context.Queue()
    crowd = [context.Process(target=compete, args=(tmp_path / "j.db", start, won)) for _ in range(3)]
    for one in crowd:
        one.start()
    start.set()
    for one in crowd:
        one.join()
    numbers = sorted(won.get() for _ in range(len(read(tmp_path / "j.db"))))
    assert numbers == list(range(1, len(numbers) + 1))
    assert won.empty()
    assert numbers


# -- files --------------------------------------------------------------------------------------------------


def test_a_file_that_was_made_read_only_is_refused_and_still_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.db"
        journal = held(path)
        journal.append(cycle(1))
        journal.close()
        os.chmod(path, 0o444)
        os.chmod(folder, 0o777)
        with as_nobody():
            with pytest.raises(JournalError) as found:
                held(path)
            assert str(found.value) == f"journal '{path}' cannot be opened: attempt to write a readonly database"
            assert read(path) == [cycle(1)]
        os.chmod(path, 0o644)
        journal = held(path)  # The refused process kept no lock.
        journal.append(cycle(2))
        journal.close()


def test_a_folder_that_takes_no_lock_file_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        with as_nobody(), pytest.raises(JournalError, match=r"j.db' cannot be opened: its lock: .*Permission denied"):
            held(Path(folder) / "j.db")
        os.chmod(folder, 0o755)
    with pytest.raises(JournalError, match=r"cannot be opened: its lock: .*No such file"):
        held(Path(folder) / "j.db")


def damage(path: Path, change: Callable[[bytes], bytes]) -> str:
    """What is said of a journal whose file was changed."""
    journal = held(path)
    journal.extend([cycle(n, 300) for n in range(1, 500)])
    journal.close()
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(JournalError) as found:
        read(path)
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_flipped_letter_is_noticed_and_its_cycle_named(tmp_path: Path) -> None:
    assert "cycle 77: it is damaged" in damage(tmp_path / "j.db", lambda b: b.replace(b"j0077", b"j0078"))


def test_garbage_in_the_middle_is_refused(tmp_path: Path) -> None:
    damage(tmp_path / "j.db", lambda b: b[: len(b) // 2] + os.urandom(8192) + b[len(b) // 2 + 8192 :])


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    damage(tmp_path / "j.db", lambda b: b[: len(b) // 2])


@pytest.mark.parametrize("instead", ["nothing", "another file"])
def test_a_journal_whose_file_was_taken_away_acknowledges_nothing(tmp_path: Path, instead: str) -> None:
    journal = held(tmp_path / "j.db")
    journal.append(cycle(1))
    (tmp_path / "j.db").rename(tmp_path / "moved.db")
    if instead == "another file":
        (tmp_path / "j.db").write_bytes(b"")
    said = "its file is gone" if instead == "nothing" else "another file is in its place"
    with pytest.raises(JournalLost, match=said):
        journal.append(cycle(2))
    journal.close()


def test_a_store_that_was_killed_while_it_was_set_up_is_begun_again(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "j.db")
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    assert (tmp_path / "j.db").stat().st_size
    journal = held(tmp_path / "j.db")
    journal.append(cycle(1))
    journal.close()
    assert read(tmp_path / "j.db") == [cycle(1)]


def test_another_database_is_not_gone_on_with(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "j.db") as db:
        db.execute("CREATE TABLE songs (title TEXT)")
    db.close()
    with pytest.raises(JournalError, match="is not a journal of hocket"):
        held(tmp_path / "j.db")


def test_a_journal_of_format_1_is_read_and_not_gone_on_with(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "j.db") as db:
        db.execute("CREATE TABLE header (value BLOB NOT NULL)")
        db.execute("CREATE TABLE cycle (n INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        db.execute("INSERT INTO header VALUES (?)", (msgspec.json.encode(Header("fifo", format=1)),))
        db.execute("INSERT INTO cycle VALUES (1, ?)", (msgspec.msgpack.encode(cycle(1)),))
    db.close()
    journal = SqliteJournal(tmp_path / "j.db")
    assert (list(journal), list(journal.saved())) == ([cycle(1)], [])
    journal.close()
    with pytest.raises(JournalError, match="has format 1, which can be read but not extended; use a new one"):
        held(tmp_path / "j.db")
