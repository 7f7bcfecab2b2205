"""Old cycles are removed from a journal: all that the rest needs of them is still there, whatever is cut short."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.service.recorded_journals import RECORDED, recorded

from hocket.control import saved_state
from hocket.control.journal import JournalError, JournalLost, SqliteJournal, open_to_remove
from hocket.control.journal.archive import ArchiveReader, archive_files
from hocket.control.journal.history import open_history
from hocket.control.journal.stored import checksum
from hocket.control.ports import FORMAT, Cycle, Header
from hocket.control.restore import restore
from hocket.policies.registry import bind
from hocket.service import compaction
from hocket.service.catalogue import Catalogue
from hocket.service.compaction import Compacted, Keep, compact, removable
from hocket.service.ended_jobs import EndedJobs
from hocket.service.kept_jobs import shortened


@pytest.fixture(params=sorted(RECORDED))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A recorded journal without saved states."""
    return recorded(request.param, tmp_path)


@pytest.fixture(autouse=True)
def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LEAST_CYCLES", 5)
    monkeypatch.setattr(compaction, "BLOCK", 4)


def held(store: str) -> SqliteJournal:
    return SqliteJournal(store, goes_on=True)


def without_rest(_took_s: float) -> None:
    pass


def compacted(store: str, until: int, archive: str = "", stage_cycles: int = 37) -> Compacted:
    with closing(held(store)) as journal:
        return compact(journal, until, archive, without_rest, stage_cycles=stage_cycles)


def found(store: str) -> tuple[bytes, bytes, Any]:
    """All that a controller makes of a journal: its state, and its jobs."""
    with closing(SqliteJournal(store)) as journal:
        policy = bind(journal.header.policy, journal.header.params)
        state = saved_state.encode(restore(journal, policy, bind=bind), policy)
        catalogue = Catalogue.of(journal, None)
    return state, listed(catalogue), (catalogue.over, catalogue.queue_reason, catalogue.kept().submitted)


def listed(catalogue: Catalogue) -> bytes:
    records = sorted(catalogue.listed(over=True), key=lambda r: r.number)
    told = []
    for record in records:
        # A rebuilt catalogue has the reason of the last plan; a compaction sees the state at the job's end.
        plain = msgspec.to_builtins(shortened(record) if record.ended_s is not None else record)
        told.append({k: v for k, v in plain.items() if k != "reason" and not (record.ended_s and k == "observations")})
    return msgspec.json.encode(told)


def length(store: str) -> int:
    with closing(SqliteJournal(store)) as journal:
        return len(journal)


def test_what_is_restored_does_not_depend_on_where_the_journal_begins(store: str) -> None:
    whole, last = found(store), length(store)
    for until in (1, last // 3, last // 2, last - 5):
        done = compacted(store, until)
        assert done.begins == until
        assert found(store) == whole
        assert length(store) == last
    with closing(SqliteJournal(store)) as journal:
        assert journal.header.format == FORMAT
        assert [cycle.at_s for cycle in journal.after(last - 5)] != []
        with pytest.raises(JournalError, match=rf"begins after cycle {last - 5}, of .*cycle 3 cannot be read"):
            next(journal.after(2))
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT min(n), count(*) FROM cycle").fetchone() == (last - 4, 5)


def cycles_of(store: str, **options: Any) -> list[Cycle]:
    with closing(open_history(store, **options)) as history:
        return list(history)


def test_archives_and_the_journal_have_all_cycles_and_each_archive_what_it_follows(store: str, tmp_path: Path) -> None:
    whole, last = cycles_of(store), length(store)
    folder = tmp_path / "journal-archive"
    compacted(store, last // 2, str(folder))
    compacted(store, last - 7, str(folder))
    assert len(cycles_of(store)) == 7
    assert cycles_of(store, everything=True) == whole
    files = archive_files(folder)
    assert len(files) > 2
    for file in files:
        history = open_history(file.path)
        assert list(history) == whole[file.first - 1 : file.last]
        assert len(history) == file.last - file.first + 1
        assert (history.beginning.number if history.beginning else 0) == file.first - 1
    for path in [folder, *folder.iterdir()]:
        assert path.stat().st_mode & 0o077 == 0


def test_a_damaged_archive_is_refused_by_name(tmp_path: Path) -> None:
    store, folder = recorded("fifo", tmp_path), tmp_path / "journal-archive"
    compacted(store, 30, str(folder))
    (file,) = archive_files(folder)
    path = Path(file.path)
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], good[:100] + b"x" + good[101:], b"", b"\x00" * 50):
        path.write_bytes(bad)
        with pytest.raises(JournalError, match=path.name):
            list(ArchiveReader(path))


def test_a_saved_state_of_before_the_beginning_is_not_used(tmp_path: Path) -> None:
    store = recorded("fifo", tmp_path)
    whole = found(store)
    with closing(held(store)) as journal:
        policy = bind(journal.header.policy, journal.header.params)
        state = saved_state.encode(restore(journal, policy, bind=bind), policy)
        journal._commit_state((10, state, checksum(10, state)))
        compact(journal, 20, rest=without_rest)
    assert found(store) == whole


class Cut(BaseException):
    """As if the process were killed there."""


def crashing(monkeypatch: pytest.MonkeyPatch, at: int, before: bool) -> Callable[[], int]:
    """From now on the `at`-th write raises, before or after it was done; gives what tells how many there were."""
    count = 0

    def cut(owner: type, name: str) -> None:
        whole = getattr(owner, name)

        def part(*given: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == at and before:
                raise Cut
            answer = whole(*given, **named)
            if count == at:
                raise Cut
            return answer

        monkeypatch.setattr(owner, name, part)

    for name in ("_commit_beginning", "_delete", "shrink"):
        cut(SqliteJournal, name)
    cut(compaction.ArchiveWriter, "finish")
    return lambda: count


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_nothing_is_lost_wherever_a_compaction_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    folder = tmp_path / "journal-archive"
    packed = Path(recorded("live", tmp_path)).read_bytes()
    whole, all_cycles, last = found(str(tmp_path / "journal.db")), cycles_of(str(tmp_path / "journal.db")), 0
    at, writes = 1, 10**6
    while at <= writes:
        for old in [*tmp_path.glob("journal.db*"), *folder.glob("*")]:
            old.unlink()
        store = str(tmp_path / "journal.db")
        Path(store).write_bytes(packed)
        last = length(store)
        with monkeypatch.context() as patch:
            writes_so_far = crashing(patch, at, before)
            try:
                compacted(store, last - 9, str(folder), 300)
                writes = 0  # It came to its end.
            except Cut:
                pass
            assert writes_so_far() >= 1
        assert found(store) == whole
        begun = begins(store)
        assert cycles_of(store, everything=begun > 0) == all_cycles
        compacted(store, last - 9, str(folder), 300)  # The next one finishes it.
        assert (begins(store), rows(store)) == (last - 9, 9)
        assert cycles_of(store, everything=True) == all_cycles
        assert not list(folder.glob("*.part"))
        at += 1
    assert at > 6


def test_archives_of_what_followed_a_restored_backup_are_set_aside(tmp_path: Path) -> None:
    """Nothing else knows of their cycles; but they are not those that the journal goes on from."""
    store, folder = recorded("fifo", tmp_path), tmp_path / "journal-archive"
    compacted(store, 20, str(folder))
    backup = Path(store).read_bytes()
    compacted(store, 60, str(folder))
    lost = {path.name: path.read_bytes() for path in folder.iterdir()}
    for part in ("-wal", "-shm"):
        Path(store + part).unlink(missing_ok=True)
    Path(store).write_bytes(backup)
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("DELETE FROM cycle WHERE n > 30")  # It is of before.
    whole = cycles_of(store, everything=True)
    with closing(held(store)) as journal:
        journal.extend([Cycle(1e6 + n, ()) for n in range(40)])
        whole += journal.after(30)
    compacted(store, 50, str(folder))
    assert cycles_of(store, everything=True) == whole
    aside = {path.name.removesuffix(".replaced"): path.read_bytes() for path in folder.glob("*.replaced")}
    assert aside
    assert aside.items() <= lost.items()


def begins(store: str) -> int:
    with closing(SqliteJournal(store)) as journal:
        beginning = journal.beginning()
        return 0 if beginning is None else beginning.number


def rows(store: str) -> int:
    with closing(sqlite3.connect(store)) as db:
        (count,) = db.execute("SELECT count(*) FROM cycle").fetchone()
        return int(count)


def test_a_process_whose_controller_was_replaced_removes_nothing(tmp_path: Path) -> None:
    store = recorded("fifo", tmp_path)
    with closing(held(store)) as journal:
        epoch = journal.epoch
    with closing(open_to_remove(store, epoch)) as removing:
        assert compact(removing, 20, rest=without_rest).cycles == 20
        held(store).close()  # Another controller comes and goes.
        with pytest.raises(JournalLost, match="taken over"):
            compact(removing, 40, rest=without_rest)
    assert begins(store) == 20


def test_a_controller_goes_on_while_cycles_are_removed(tmp_path: Path) -> None:
    """The process that removes has a connection of its own; what is appended meanwhile is there."""
    store = recorded("fifo", tmp_path)
    with closing(held(store)) as journal, closing(open_to_remove(store, journal.epoch)) as removing:
        last = len(journal)
        appended = []

        def rest(_took_s: float) -> None:
            cycle = Cycle(1e6 + len(appended), ())
            journal.append(cycle)
            appended.append(cycle)

        compact(removing, last - 10, rest=rest)
        assert len(appended) > 2
        assert list(journal.after(last)) == appended


def test_the_file_shrinks_with_what_is_removed(tmp_path: Path) -> None:
    old = recorded("las", tmp_path)
    with closing(sqlite3.connect(old, isolation_level=None)) as db:  # as older versions made it
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
    before = Path(old).stat().st_size
    with closing(held(old)) as journal:
        done = compact(journal, len(journal) - 5, rest=without_rest)
        assert done.bytes_after < done.bytes_before
        assert Path(old).stat().st_size >= before - 8192
        journal.rewrite()
        assert Path(old).stat().st_size <= done.bytes_after + 8192
        assert journal._pragma("auto_vacuum") == 2
    new = str(tmp_path / "new.db")
    with closing(SqliteJournal(new, Header("fifo"))) as journal:
        journal.extend([Cycle(float(n), (), None, ("x" * 5000,)) for n in range(300)])
        grown = journal.size
        compact(journal, 290, rest=without_rest)
        journal._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert Path(new).stat().st_size < grown / 5


@pytest.mark.parametrize(
    ("keep", "now_s", "until"),
    [
        (Keep(), 1e9, 0),
        (Keep(history_s=50.0), 100.0, 49),  # cycle n is of second n: those before 50
        (Keep(history_s=95.0), 100.0, 0),  # too few to remove
        (Keep(history_s=10.0), 1000.0, 95),  # the last ones are always kept
        (Keep(size=10**9), 100.0, 0),
        (Keep(size=1), 100.0, 95),
    ],
)
def test_cycles_are_removed_by_their_age(tmp_path: Path, keep: Keep, now_s: float, until: int) -> None:
    with closing(of_seconds(tmp_path)) as journal:
        assert removable(journal, keep, now_s) == until


def of_seconds(folder: Path) -> SqliteJournal:
    journal = SqliteJournal(folder / "seconds.db", Header("fifo"))
    journal.extend([Cycle(float(n), (), None, ("x" * 4000,)) for n in range(1, 101)])
    return journal


def test_cycles_are_removed_by_the_size_of_the_journal(tmp_path: Path) -> None:
    with closing(of_seconds(tmp_path)) as journal:
        keep = Keep(size=journal.size // 2)
        until = removable(journal, keep, 100.0)
        assert 55 <= until <= 65
        compact(journal, until, rest=without_rest)
        assert removable(journal, keep, 100.0) == 0
        assert journal.size < keep.size


def test_the_catalogue_is_made_of_what_the_journal_keeps(store: str, tmp_path: Path) -> None:
    last = length(store)
    _state, jobs, counts = found(store)
    compacted(store, last - 5)
    with closing(SqliteJournal(store)) as journal:
        ended_jobs = EndedJobs(tmp_path / "c.db")
        catalogue = Catalogue.of(journal, ended_jobs)
        assert listed(catalogue) == jobs
        assert (catalogue.over, catalogue.queue_reason, catalogue.kept().submitted) == counts
        catalogue.close(last)
        again = Catalogue.of(journal, EndedJobs(tmp_path / "c.db"))
        assert listed(again) == jobs


def test_a_state_of_another_version_is_read_where_nothing_else_is_left(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, *_rest = found(store)
    compacted(store, length(store) - 5)
    monkeypatch.setattr(saved_state, "form", lambda: 1)
    with closing(SqliteJournal(store)) as journal:
        policy = bind(journal.header.policy, journal.header.params)
        other = saved_state.encode(restore(journal, policy, bind=bind), policy)
    form = msgspec.msgpack.decode(state)
    assert msgspec.msgpack.decode(other)[1:] == form[1:]
