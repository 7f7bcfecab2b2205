"""The past as it was: any cycle, in any order, is what folding the journal from its beginning gives."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from tests.unit.service.recorded_journals import RECORDED, recorded

from hocket.control import saved_state
from hocket.control.controller import Controller
from hocket.control.journal import JournalError, SqliteJournal, open_to_append
from hocket.control.ports import Cycle, Header
from hocket.control.restore import Unwritten, again
from hocket.model.snapshot import empty_snapshot
from hocket.policies.registry import bind
from hocket.service import compaction, past_states
from hocket.service.catalogue import Catalogue
from hocket.service.compaction import compact
from hocket.service.history_fold import HistoryFold
from hocket.service.kept_jobs import decode_block
from hocket.service.past_states import NotKept, PastStates
from hocket.testing.postgresql import PostgresServer

EVERYTHING = 10**9


@pytest.fixture(params=sorted(RECORDED))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def store(name: str, tmp_path: Path) -> str:
    return recorded(name, tmp_path)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_states, "_SEGMENT", 40)
    monkeypatch.setattr(past_states, "_ROOM", 1e9)
    monkeypatch.setattr(compaction, "LEAST_CYCLES", 5)


class Truth:
    """What each cycle of a journal led to, folded from the beginning by the controller's own restore."""

    def __init__(self, store: str) -> None:
        with closing(SqliteJournal(store)) as journal:
            self.cycles: list[Cycle] = list(journal)
            header = journal.header
        policy = bind(header.policy, header.params)
        start = empty_snapshot(header.nodes, header.seed)
        controller = Controller(start, policy.decide, policy.order, Unwritten(header), **policy.needs, bind=bind)
        catalogue = Catalogue()
        self.states: list[bytes] = [b""]
        self.jobs: list[set[tuple[str, str, bool]]] = [set()]
        for cycle in self.cycles:
            again(controller, cycle)
            self.states.append(saved_state.encode(controller, policy))
            catalogue.add_cycle(cycle)
            records = catalogue.listed(over=True)
            self.jobs.append({(r.job.id, r.verdict, r.ended_s is None) for r in records})

    @property
    def last(self) -> int:
        return len(self.cycles)

    def is_decision(self, number: int) -> bool:
        cycle = self.cycles[number - 1]
        plan = cycle.plan
        return plan is not None and bool(cycle.refused or plan.put or plan.drop or plan.ends)


@cache
def truth_of(name: str) -> Truth:
    """Of a recorded journal, whose cycles never change; nothing writes to it."""
    with TemporaryDirectory() as folder:
        return Truth(recorded(name, Path(folder)))


@pytest.fixture
def truth(name: str) -> Truth:
    return truth_of(name)


@pytest.fixture
def states(store: str, tmp_path: Path) -> Iterator[PastStates]:
    with closing(PastStates(store, tmp_path / "archive", tmp_path / "history.db")) as found:
        found.index_further(EVERYTHING)
        yield found


def encoded(store: str, fold: HistoryFold) -> bytes:
    with closing(SqliteJournal(store)) as journal:
        header = journal.header
    return saved_state.encode(fold.controller, bind(header.policy, header.params))


def positions(last: int, count: int = 25) -> list[int]:
    drawn = random.Random(7).sample(range(1, last + 1), min(last, count))
    return [1, last, *drawn, 2, last - 1]


def same(states: PastStates, store: str, truth: Truth, numbers: list[int]) -> None:
    for number in numbers:
        past = states.at(number)
        assert past.cycle == truth.cycles[number - 1]
        assert encoded(store, past.fold) == truth.states[number], number


def test_any_cycle_in_any_order_is_as_it_was(states: PastStates, store: str, truth: Truth) -> None:
    assert (states.first, states.indexed, states.last) == (1, truth.last, truth.last)
    same(states, store, truth, positions(truth.last))
    some = truth.last // 2
    same(states, store, truth, [some, some + 1, some + 2, some + 1, some])


def test_live_and_ended_jobs_are_those_of_that_cycle(states: PastStates, truth: Truth) -> None:
    for number in positions(truth.last, 15):
        past = states.at(number)
        live = {(r.job.id, r.verdict, True) for r in past.fold.catalogue.records.values() if r.ended_s is None}
        over = {(r.job.id, r.verdict, False) for r in states.ended(past, EVERYTHING)}
        assert live | over == truth.jobs[number], number
    ended = states.ended(states.at(truth.last), EVERYTHING)
    assert [r.number for r in ended] == sorted(r.number for r in ended)
    last = sorted(r.ended_s or 0.0 for r in ended)[-3:]
    assert sorted(r.ended_s or 0.0 for r in states.ended(states.at(truth.last), 3)) == last
    assert states.ended(states.at(truth.last), 0) == []
    blocks = [decode_block("", block) for block in states._index.ended(truth.last)]
    stored = [record.number for block in blocks for record in block]
    assert len(stored) == len(set(stored)), "a job is in the index twice"


def test_only_a_segment_is_folded_for_a_position(
    states: PastStates, store: str, tmp_path: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(states._index.segments) >= 2
    longest = max(s.last - s.first + 1 for s in states._segments())
    assert longest < truth.last / 2
    folded = []
    fold = HistoryFold.fold
    monkeypatch.setattr(HistoryFold, "fold", lambda self, *given: (folded.append(given[0]), fold(self, *given)))
    with closing(PastStates(store, None, tmp_path / "history.db")) as again_opened:
        again_opened.index_further(EVERYTHING)
        assert len(folded) <= longest  # The index is still there.
        for number in positions(truth.last):
            folded.clear()
            again_opened.at(number)
            assert len(folded) <= longest
        folded.clear()
        again_opened.at(truth.last - 1)
        again_opened.at(truth.last - 1)
        assert folded.count(truth.last - 1) <= 1  # The same position twice is not folded twice.


def test_as_the_journal_grows_the_rest_is_indexed(store: str, tmp_path: Path, truth: Truth) -> None:
    with closing(SqliteJournal(store)) as journal:
        header = journal.header
    growing = str(tmp_path / "growing.db")
    half = truth.last // 2
    with closing(SqliteJournal(growing, header)) as journal:
        journal.extend(truth.cycles[:half])
        with closing(PastStates(growing, None, None)) as states:
            assert states.index_further(3) == 3
            assert states.indexed == 3
            states.index_further(EVERYTHING)
            same(states, growing, truth, [half, 1])
            with pytest.raises(NotKept, match=f"the history has cycles 1 to {half}"):
                states.at(half + 1)
            journal.extend(truth.cycles[half:])
            states.index_further(EVERYTHING)
            same(states, growing, truth, [truth.last, half + 1, half, 1])


def test_times_find_the_last_cycle_before_them(states: PastStates, truth: Truth) -> None:
    for number in positions(truth.last):
        at_s = truth.cycles[number - 1].at_s
        after = [n for n, cycle in enumerate(truth.cycles, 1) if cycle.at_s <= at_s][-1]
        assert states.cycle_at(at_s) == after
        before = [n for n, cycle in enumerate(truth.cycles, 1) if cycle.at_s <= at_s - 0.001]
        if before:
            assert states.cycle_at(at_s - 0.001) == before[-1]
    assert states.cycle_at(truth.cycles[-1].at_s + 1e6) == truth.last
    with pytest.raises(NotKept, match=r"nothing is kept of .*: the history has cycles 1 to"):
        states.cycle_at(truth.cycles[0].at_s - 1)


def test_decisions_before_and_after_a_cycle_are_found(states: PastStates, truth: Truth) -> None:
    decisions = [n for n in range(1, truth.last + 1) if truth.is_decision(n)]
    assert len(decisions) >= 4
    for number in positions(truth.last):
        assert states.decision_before(number) == max((n for n in decisions if n < number), default=None)
        assert states.decision_after(number) == min((n for n in decisions if n > number), default=None)


@pytest.mark.parametrize("buckets", [1, 7, 200])
def test_the_density_counts_every_cycle_once(states: PastStates, truth: Truth, buckets: int) -> None:
    found = states.density(buckets)
    assert len(found) == buckets
    assert sum(b.cycles for b in found) == truth.last
    assert sum(b.decisions for b in found) == sum(truth.is_decision(n) for n in range(1, truth.last + 1))
    assert found[-1].last == truth.last
    for this, after in pairwise(found):
        within = [n for n, c in enumerate(truth.cycles, 1) if this.from_s <= c.at_s < after.from_s]
        assert this.cycles == len(within)
        assert this.last == (within[-1] if within else this.last)
        assert this.last <= after.last
    first_s, last_s = truth.cycles[0].at_s, truth.cycles[-1].at_s
    since_s, until_s = first_s + (last_s - first_s) / 3, first_s + (last_s - first_s) / 2
    part = states.density(buckets, since_s, until_s)
    assert sum(b.cycles for b in part) == sum(since_s <= c.at_s <= until_s for c in truth.cycles)
    assert states.density(buckets, last_s + 1, last_s + 2) == []
    assert states.density(buckets, until_s, since_s) == []


def compacted(store: str, until: int, archive: Path | None) -> None:
    with closing(SqliteJournal(store, goes_on=True)) as journal:
        compact(journal, until, str(archive or ""), lambda _s: None, stage_cycles=37)


def test_archived_cycles_can_be_looked_at_with_or_without_an_index(
    states: PastStates, store: str, tmp_path: Path, truth: Truth
) -> None:
    compacted(store, truth.last - 7, tmp_path / "archive")
    assert states.first == 1
    same(states, store, truth, positions(truth.last, 10))
    with closing(PastStates(store, tmp_path / "archive", None)) as anew:
        anew.index_further(EVERYTHING)
        same(anew, store, truth, positions(truth.last, 10))
        over = {(r.job.id, r.verdict, False) for r in anew.ended(anew.at(truth.last // 2), EVERYTHING)}
        assert over == {job for job in truth.jobs[truth.last // 2] if not job[2]}


def test_what_was_removed_for_good_is_said_and_the_rest_is_there(states: PastStates, store: str, truth: Truth) -> None:
    until = truth.last - 7
    compacted(store, until, None)
    assert states.first == until + 1
    with pytest.raises(NotKept, match=rf"cycle 3: the history has cycles {until + 1} to .* removed from the journal"):
        states.at(3)
    with pytest.raises(NotKept):
        states.cycle_at(truth.cycles[2].at_s)
    same(states, store, truth, [truth.last, until + 1, truth.last - 2])
    states.forget()
    assert all(segment.last >= until for segment in states._index.segments)
    with closing(PastStates(store, None, None)) as anew:
        anew.index_further(EVERYTHING)
        same(anew, store, truth, [until + 1, truth.last])
        past = anew.at(until + 1)
        over = {(r.job.id, r.verdict, False) for r in anew.ended(past, EVERYTHING)}
        assert over == {job for job in truth.jobs[until + 1] if not job[2]}


def test_a_front_whose_next_cycles_were_removed_begins_where_the_journal_does(
    store: str, tmp_path: Path, truth: Truth
) -> None:
    with closing(PastStates(store, None, tmp_path / "history.db")) as states:
        states.index_further(50)
        compacted(store, truth.last - 7, None)
        assert states.index_further(EVERYTHING) == 7
        same(states, store, truth, [truth.last, truth.last - 3])


def test_an_index_of_another_journal_is_made_anew(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    index = tmp_path / "history.db"
    with closing(PastStates(recorded("fifo", one), None, index)) as states:
        states.index_further(EVERYTHING)
        assert states._index.segments
    store, truth = recorded("las", other), truth_of("las")
    with closing(PastStates(store, None, index)) as states:
        assert states.indexed == 0
        states.index_further(EVERYTHING)
        same(states, store, truth, positions(truth.last, 5))


@pytest.mark.parametrize("harm", ["no database", "another form", "a damaged state"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, harm: str) -> None:
    store = recorded("fifo", tmp_path)
    index, truth = tmp_path / "history.db", truth_of("fifo")
    with closing(PastStates(store, None, index)) as states:
        states.index_further(EVERYTHING)
    if harm == "no database":
        for part in tmp_path.glob("history.db-*"):
            part.unlink()
        index.write_bytes(b"this is no database" * 100)
    else:
        with closing(sqlite3.connect(index, isolation_level=None)) as db:
            db.execute("UPDATE form SET value = 1" if harm == "another form" else "UPDATE segment SET state = x'00'")
    with closing(PastStates(store, None, index)) as states:
        assert states.indexed == 0
        states.index_further(EVERYTHING)
        same(states, store, truth, positions(truth.last, 5))


def test_a_journal_in_postgresql_is_read_as_well(server: PostgresServer, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'hocket[postgresql]'")
    store, truth = recorded("live", tmp_path), truth_of("live")
    with closing(SqliteJournal(store)) as journal:
        header = journal.header
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE SCHEMA past")
    url = f"{server.url}&options={quote('-csearch_path=past')}"
    with closing(open_to_append(url, header)) as journal, closing(PastStates(url)) as states:
        journal.extend(truth.cycles)
        states.index_further(EVERYTHING)
        same(states, store, truth, positions(truth.last, 5))


def test_a_policy_that_is_not_there_any_more_is_named(tmp_path: Path) -> None:
    store = str(tmp_path / "journal.db")
    with closing(SqliteJournal(store, Header("no_such_policy"))) as journal:
        journal.append(Cycle(1.0, ()))
    with pytest.raises(JournalError, match="no_such_policy"):
        PastStates(store)


def test_the_index_takes_no_more_room_than_in_proportion_to_the_journal(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_states, "_ROOM", 0.5)
    with closing(PastStates(store, None, tmp_path / "history.db")) as states:
        states.index_further(EVERYTHING)
        sizes = [len(msgspec.msgpack.encode(states._index.state(s.last))) for s in states._index.segments]
        first = sizes[0] if sizes else 0
        read: Any = sum(len(value) for _n, value, _crc in states._journal.rows_after(0))
    assert sum(sizes) <= first + 0.5 * read * 1.1
