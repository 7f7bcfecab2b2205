"""What holds for journals of every kind of store: one holder, no gap, nothing acknowledged is lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.children import child

from hocket.control.journal import JournalError, JournalHeld, JournalLost, open_to_append, open_to_read, open_to_remove
from hocket.control.journal.stored import StoredJournal, checksum
from hocket.control.ports import FORMAT, Beginning, Cycle, Header
from hocket.model.event import EpochEnded, JobSubmitted
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.resources import Node

HEADER = Header("fifo", {"x": 1}, (Node("n", 4),), 7, "test")


def cycle(number: int, jobs: int = 1) -> Cycle:
    at_s = float(number)
    return Cycle(at_s, tuple(JobSubmitted(at_s, Job(f"j{number}-{i}")) for i in range(jobs)))


CYCLES = [cycle(n) for n in range(1, 8)]


def edit(store: str, statement: str, *values: Any) -> None:
    """Run one statement on the tables of a store, behind its journal's back."""
    if store.startswith("postgresql"):
        import psycopg

        tables = re.sub(r"\b(header|cycle|saved|writer|kept|beginning|ended)\b", r"hocket_\1", statement, count=1)
        with psycopg.connect(store, autocommit=True) as db:
            db.execute(tables.replace("?", "%s"), values)
        return
    with sqlite3.connect(store) as db:
        db.execute(statement, values)
    db.close()


def begun(store: str, cycles: list[Cycle] = CYCLES) -> StoredJournal:
    journal = open_to_append(store, HEADER)
    journal.extend(cycles)
    return journal


def read(store: str) -> list[Cycle]:
    journal = open_to_read(store)
    try:
        return list(journal)
    finally:
        journal.close()


def refused(store: str) -> str:
    with pytest.raises(JournalError) as found:
        read(store)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_controller_goes_on_with_the_journal_of_the_one_before(store: str) -> None:
    begun(store).close()
    journal = open_to_append(store, Header("another"))
    assert journal.header == HEADER, "the one it was begun with"
    assert len(journal) == len(CYCLES)
    journal.append(cycle(8))
    assert list(journal) == [*CYCLES, cycle(8)]
    journal.close()
    assert read(store) == [*CYCLES, cycle(8)]


def test_reading_begins_after_any_cycle(store: str) -> None:
    journal = begun(store)
    assert [list(journal.after(n)) for n in (0, 3, 7, 9)] == [CYCLES, CYCLES[3:], [], []]
    journal.close()


def test_a_long_journal_is_read_in_pages_and_up_to_its_present_end(store: str) -> None:
    cycles = [cycle(n) for n in range(1, 701)]
    journal = begun(store, cycles)
    reader = open_to_read(store)
    reading = iter(reader)
    assert next(reading) == cycles[0]
    journal.append(cycle(701))
    assert list(reading) == [*cycles[1:], cycle(701)]
    reader.close()
    journal.close()


def test_several_cycles_are_kept_all_or_none(store: str) -> None:
    journal = begun(store)
    cannot = Cycle(9.0, (), Plan(memo=object()))
    with pytest.raises(JournalError, match=r"cannot keep cycle 9: Encoding objects of type object"):
        journal.extend([cycle(8), cannot])
    assert journal.recover() == len(CYCLES)
    journal.extend([])
    assert list(journal) == CYCLES
    journal.close()


def test_a_plans_maps_come_back_in_their_order(store: str) -> None:
    plan = Plan(ends={"z": "hopeless", "a": "hopeless"}, reasons={"z": "no", "a": "no"})
    journal = begun(store, [Cycle(1.0, (EpochEnded(1.0, "a", 1, {"loss": 1.0, "acc": 2.0}),), plan)])
    (kept,) = journal
    assert kept.plan is not None
    assert list(kept.plan.ends) == ["z", "a"]
    journal.close()


# -- old cycles are removed ---------------------------------------------------------------------------------

BEGINNING = Beginning(4, 4.0, b"state", b"jobs", "0.1")


def test_cycles_before_the_beginning_are_removed_and_those_after_it_stay(store: str) -> None:
    journal = begun(store)
    assert journal.beginning() is None
    assert list(journal.ended()) == []
    journal.begin_at(replace(BEGINNING, number=2), [b"one", b"two"])
    journal.begin_at(BEGINNING, [b"three"])
    with pytest.raises(JournalError, match="begins after cycle 4 already"):
        journal.begin_at(BEGINNING, [])
    assert [journal.remove(3), journal.remove(3), journal.remove(3)] == [3, 1, 0]
    journal.shrink(1 << 30)
    journal.append(cycle(8))
    journal.close()
    reader = open_to_read(store)
    assert reader.beginning() == BEGINNING
    assert list(reader.ended()) == [b"one", b"two", b"three"]
    assert list(reader.after(4)) == [*CYCLES[4:], cycle(8)]
    assert len(reader) == 8
    assert reader.header == replace(HEADER, format=FORMAT)
    with pytest.raises(JournalError, match=r"begins after cycle 4, of 4 s: .* so cycle 4 cannot be read"):
        next(reader.after(3))
    reader.close()


def test_a_damaged_beginning_is_refused(store: str) -> None:
    journal = begun(store)
    journal.begin_at(BEGINNING, [b"one"])
    journal.close()
    for table, said in (("beginning", "its beginning, after cycle 4, is damaged"), ("ended", "block 1 of its ended")):
        edit(store, f"UPDATE {table} SET value = ?", b"spoilt")
        reader = open_to_read(store)
        with pytest.raises(JournalError, match=said):
            list(reader.after(4)) if table == "beginning" else list(reader.ended())
        reader.close()
        edit(store, f"UPDATE {table} SET crc = ?", checksum(4 if table == "beginning" else 1, b"spoilt"))
        reader = open_to_read(store)
        if table == "beginning":
            with pytest.raises(JournalError, match="its beginning cannot be read"):
                reader.beginning()
        reader.close()


def test_a_process_removes_cycles_for_the_controller_whose_epoch_it_has(store: str) -> None:
    journal = begun(store)
    other = open_to_remove(store, journal.epoch)
    other.begin_at(BEGINNING, [])
    journal.append(cycle(8))  # which goes on
    assert other.remove(100) == 4
    journal.close()
    journal = open_to_append(store, HEADER)  # Another controller takes over.
    for write in (lambda: other.remove(1), lambda: other.begin_at(replace(BEGINNING, number=5), [])):
        with pytest.raises(JournalLost, match="taken over by"):
            write()
    other.close()
    assert [c.at_s for c in journal.after(4)] == [5.0, 6.0, 7.0, 8.0]
    assert journal.size > 0
    journal.close()


# -- one holder ---------------------------------------------------------------------------------------------


def test_a_second_controller_is_refused_by_the_name_of_the_first(store: str) -> None:
    journal = begun(store)
    with pytest.raises(JournalHeld) as found:
        open_to_append(store, HEADER)
    said = str(found.value)
    assert journal.name in said
    assert f"the controller with pid {os.getpid()} on host '{socket.gethostname()}' since 20" in said
    assert "\n" not in said
    journal.append(cycle(8))  # which has not noticed
    journal.close()
    open_to_append(store, HEADER).close()


def test_the_journal_of_a_running_controller_is_read_and_not_written(store: str) -> None:
    journal = begun(store)
    reader = open_to_read(store)
    journal.append(cycle(8))
    assert reader.header == HEADER
    assert len(reader) == reader.recover() == 8
    assert list(reader) == [*CYCLES, cycle(8)]
    for write in (lambda: reader.append(cycle(9)), lambda: reader.save(b"x")):
        with pytest.raises(JournalError, match="it is open for reading"):
            write()
    reader.close()
    journal.close()


WRITER = """
import os, subprocess, sys
from hocket.control.journal import open_to_append
from hocket.control.ports import Cycle, Header
from hocket.model.event import JobSubmitted
from hocket.model.job import Job
journal = open_to_append(sys.argv[1], Header("fifo"))
n = len(journal)
children = sys.argv[2:] == ["children"]
if children:
    print(subprocess.Popen(["sleep", "60"]).pid)
    child = os.fork()
    if not child:
        os.execvp("sleep", ["sleep", "60"]) if os.fork() else __import__("time").sleep(60)
        os._exit(0)
    print(child, flush=True)
while True:
    group = range(n, n + 5)
    journal.extend([Cycle(float(i), tuple(JobSubmitted(float(i), Job(f"j{i}-{k}")) for k in range(20))) for i in group])
    n += 5
    if not children:
        print(n, flush=True)
"""


def writer(store: str, *more: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return child([sys.executable, "-c", WRITER, store, *more], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_every_acknowledged_cycle_survives_the_kill_of_its_writer_in_the_midst_of_a_group(store: str) -> None:
    acknowledged = 0
    for _ in range(2):  # The second goes on where the first was killed.
        with writer(store) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= acknowledged + 100:
                    process.send_signal(signal.SIGKILL)
                    break
            acknowledged = [int(line), *map(int, process.stdout.read().split())][-1]
        cycles = read(store)
        assert [c.at_s for c in cycles] == list(range(len(cycles))), "no gap, nothing torn, nothing twice"
        assert len(cycles) >= acknowledged
        assert len(cycles) % 5 == 0, "a group is kept whole"
        assert all(len(c.events) == 20 for c in cycles)


@pytest.mark.slow
def test_the_lock_goes_with_its_process_whatever_children_it_leaves(store: str) -> None:
    with writer(store, "children") as process:
        assert process.stdout is not None
        children = [int(process.stdout.readline()) for _ in range(2)]
        try:
            with pytest.raises(JournalHeld, match=f"pid {process.pid} "):
                open_to_append(store, HEADER)
            process.kill()
            process.wait()
            for child in children:
                os.kill(child, 0)  # still there
            taken = until_free(store)
            taken.append(cycle(len(taken) + 1))
            taken.close()
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


def until_free(store: str) -> StoredJournal:
    """A server may need a moment to see that its client is dead."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            return open_to_append(store, HEADER)
        except JournalHeld:
            time.sleep(0.01)
    return open_to_append(store, HEADER)


# -- doubt and damage ---------------------------------------------------------------------------------------


def test_nothing_is_appended_after_a_failure_before_it_is_recovered(store: str) -> None:
    journal = begun(store)
    with pytest.raises(JournalError):
        journal.append(Cycle(8.0, (), Plan(memo=object())))
    with pytest.raises(JournalError, match="an append failed; nothing is appended before recover"):
        journal.append(cycle(8))
    assert journal.recover() == 7
    journal.append(cycle(8))
    assert read(store) == [*CYCLES, cycle(8)]
    journal.close()


def test_another_epoch_ends_it_for_good(store: str) -> None:
    journal = begun(store)
    edit(store, "UPDATE writer SET epoch = epoch + 1, holder = ?", b'{"pid": 5, "host": "h", "since": "noon"}')
    for attempt in (lambda: journal.append(cycle(8)), lambda: journal.save(b""), journal.recover):
        with pytest.raises(JournalLost, match="taken over by the controller with pid 5 on host 'h' since noon"):
            attempt()
    assert list(journal) == CYCLES, "reading it is no harm"
    journal.close()


@pytest.mark.parametrize(
    ("gone", "said"),
    [("n = 3", "cycle 3 is missing"), ("n IN (3, 4)", "cycles 3 to 4 are missing"), ("n < 3", "cycles 1 to 2 are")],
)
def test_a_gap_is_refused_with_its_numbers(store: str, gone: str, said: str) -> None:
    begun(store).close()
    edit(store, f"DELETE FROM cycle WHERE {gone}")
    assert said in refused(store)


def test_a_damaged_cycle_is_named_even_if_it_can_be_decoded(store: str) -> None:
    begun(store).close()
    edit(store, "UPDATE cycle SET value = ? WHERE n = 3", msgspec.msgpack.encode(cycle(33)))
    assert "cycle 3: it is damaged: its checksum is wrong" in refused(store)


def test_cycles_that_changed_places_are_noticed(store: str) -> None:
    begun(store).close()
    for change in ("n = 99 WHERE n = 3", "n = 3 WHERE n = 4", "n = 4 WHERE n = 99"):
        edit(store, f"UPDATE cycle SET {change}")
    assert "cycle 3: it is damaged" in refused(store)


def test_a_cycle_that_cannot_be_decoded_is_named(store: str) -> None:
    begun(store).close()
    edit(store, "UPDATE cycle SET value = ?, crc = NULL WHERE n = 3", b"\x81")
    assert "cycle 3: Input data was truncated" in refused(store)


def test_a_newer_format_is_refused(store: str) -> None:
    begun(store).close()
    edit(store, "UPDATE header SET value = ?", msgspec.json.encode({"policy": "x", "format": FORMAT + 1}))
    for opened in (lambda: open_to_read(store), lambda: open_to_append(store, HEADER)):
        with pytest.raises(JournalError, match=f"has format {FORMAT + 1}, this hocket reads up to {FORMAT}"):
            opened()
    edit(store, "UPDATE header SET value = ?", msgspec.json.encode(HEADER))
    open_to_append(store, HEADER).close()  # The refused process kept no lock.


def test_a_journal_that_is_not_there_is_not_read(store: str) -> None:
    with pytest.raises(JournalError, match="does not exist"):
        open_to_read(store)


# -- saved states -------------------------------------------------------------------------------------------


def test_the_two_newest_states_are_kept_with_their_cycles(store: str) -> None:
    journal = begun(store, CYCLES[:2])
    assert list(journal.saved()) == []
    for number, state in ((3, b"three"), (4, b"four"), (5, b"five")):
        journal.append(cycle(number))
        journal.save(state)
    assert list(journal.saved()) == [(5, b"five"), (4, b"four")]
    journal.save(b"five, better")
    assert list(journal.saved()) == [(5, b"five, better"), (4, b"four")]
    journal.close()
    reader = open_to_read(store)
    assert list(reader.saved()) == [(5, b"five, better"), (4, b"four")]
    assert len(list(reader)) == 5, "all cycles stay"
    reader.close()


def test_a_damaged_state_is_passed_over(store: str) -> None:
    journal = begun(store)
    journal.save(b"seven")
    journal.append(cycle(8))
    journal.save(b"eight")
    edit(store, "UPDATE saved SET value = ? WHERE n = 8", b"eighty")
    assert list(journal.saved()) == [(7, b"seven")]
    journal.close()


# -- names --------------------------------------------------------------------------------------------------


def test_other_urls_are_refused() -> None:
    with pytest.raises(JournalError, match=r"'mysql://…': a store must be a file or a postgresql:// URL"):
        open_to_read("mysql://me:secret@there/db")


def test_values_are_kept_beside_the_cycles_until_they_are_removed(store: str) -> None:
    journal = begun(store)
    journal.keep("token", {"ana": b"1", "bob": b"2"})
    journal.keep("secret", {"ana": b"3"})
    journal.keep("token", {"ana": b"4", "bob": None, "nobody": None})
    journal.keep("token", {})
    journal.close()
    journal = open_to_append(store, HEADER)
    assert journal.kept("token") == {"ana": b"4"}
    assert journal.kept("secret") == {"ana": b"3"} == journal.kept("secret", "ana")
    assert journal.kept("secret", "bob") == {}
    journal.close()
    assert read(store) == CYCLES


def test_a_journal_of_an_older_version_gets_the_table_of_values(store: str) -> None:
    begun(store).close()
    edit(store, "DROP TABLE kept")
    journal = open_to_append(store, HEADER)
    assert journal.kept("token") == {}
    journal.close()


def test_a_controller_that_was_replaced_keeps_no_value(store: str) -> None:
    journal = begun(store)
    edit(store, "UPDATE writer SET epoch = epoch + 1")
    for value in (b"1", None):
        with pytest.raises(JournalLost):
            journal.keep("token", {"ana": value})
    journal.close()


def test_a_value_that_is_removed_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = begun(str(path))
    secret = b"s3cret" * 20
    for n in range(3):
        journal.keep("secret", {f"job-{n}": secret + bytes([n])})
    journal.close()  # What is in the write-ahead log is in the file now.
    assert secret in path.read_bytes()
    journal = open_to_append(str(path), HEADER)
    journal.keep("secret", dict.fromkeys(f"job-{n}" for n in range(3)))
    journal.close()
    assert secret not in path.read_bytes()
