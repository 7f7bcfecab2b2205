"""A controller that was killed comes back as it was: state, timers, and all that it decides from then on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hocket.control import saved_state
from hocket.control.controller import Controller
from hocket.control.journal import JournalError, JournalLost, MemoryJournal, SqliteJournal, open_to_append
from hocket.control.journal.stored import checksum
from hocket.control.ports import Cycle, Header, Journal
from hocket.control.restore import again, restore
from hocket.control.saved_state import StateSaver
from hocket.control.state import CycleNotes, Facts, Indices
from hocket.executors.simulated import SimulatedExecutor, parse_beliefs
from hocket.model.capacity import Capacity
from hocket.model.event import JobStarted, JobSubmitted, NodeJoined
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import ALWAYS, Plan, Wake
from hocket.model.resources import Node, Slice
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import JobState, JobView, Tier
from hocket.policies import find, policies
from hocket.policies.registry import BoundPolicy, Params, Policy
from hocket.testing import strategies as some
from hocket.testing.builders import cluster, submitted
from hocket.testing.harness import Harness
from hocket.workloads.cluster import parse_cluster
from hocket.workloads.demo import demo
from hocket.workloads.truth import Fault, Workload

SEED = 3
NODES = tuple(parse_cluster("4x4"))


def world(until_s: float = 9000.0) -> SimulatedExecutor:
    """Owners with quotas, criteria, costs, epochs, noise, and a node that is lost and comes back."""
    whole = demo(5)
    faults = (Fault(4000.0, "n002", 6000.0),)
    workload = Workload("demo", whole.submissions, owners=whole.owners, faults=faults)
    return SimulatedExecutor(workload, NODES, seed=SEED, beliefs=parse_beliefs("noisy:0.3"), noise=0.2, until_s=until_s)


def new(policy: BoundPolicy, journal: Journal, nodes: tuple[Node, ...] = NODES, seed: int = SEED) -> Controller:
    return Controller(empty_snapshot(nodes, seed), policy.decide, policy.order, journal, **policy.needs)


def header(policy: BoundPolicy) -> Header:
    return Header(policy.policy.name, policy.settings, NODES, SEED)


def kept(cycle: Cycle) -> Cycle:
    """As it comes back from a journal on disk."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(cycle), type=Cycle)


def fields(controller: Controller, *, between: bool = False) -> dict[str, Any]:
    """All that a restore gives back, by what `state.py` and `controller.py` say of their fields."""
    state, timers, live = controller.state, controller.timers, controller.state.jobs.live
    found = {f"state.{name}": getattr(state, name) for name in (*Facts.__slots__, *Indices.__slots__)}
    found |= {k: v for k, v in vars(controller).items() if k not in Controller.NOT_RESTORED | {"state", "timers"}}
    if not between:
        found |= {f"notes.{name}": getattr(state.notes, name) for name in CycleNotes.__slots__}
    # Outdated moments stay until they come up or a state is saved.
    found["timers"] = sorted({at for at in timers.heap if at[1] in live})
    found["timers.verdict_s"] = {job: at_s for job, at_s in timers.verdict_s.items() if job in live}
    if state.shifts is not None:
        found["shifts"] = sorted({at for at in state.shifts.heap if state.shifts.by_job.get(at[1]) == at[0]})
        found["shifts.by_job"] = state.shifts.by_job
    for name, value in found.items():
        if hasattr(value, "seal"):
            sealed = value.seal()
            # The order of a map counts too: policies and folds go through it.
            found[name] = sealed.items() if hasattr(sealed, "items") else sealed.buckets()
        elif isinstance(value, Capacity):
            found[name] = (list(value), value.gpus, value.up, value._by_count, value.layout.nodes)
    return found


def differences(one: Controller, other: Controller, *, between: bool = False) -> list[str]:
    """The names of the fields in which they differ."""
    left, right = fields(one, between=between), fields(other, between=between)
    return [name for name in left.keys() | right.keys() if name not in left or left[name] != right.get(name)]


def assert_equal(one: Controller, other: Controller, *, between: bool = False) -> None:
    assert differences(one, other, between=between) == []


class Lived:
    """A simulated run that nothing interrupts, and what was seen of its controller meanwhile."""

    def __init__(self, policy: BoundPolicy) -> None:
        self.policy = policy
        self.journal = journal = MemoryJournal(header(policy))
        self.folded = new(policy, MemoryJournal(header(policy)))
        self.folded_wrong: list[tuple[int, list[str]]] = []  # after which cycle, and in which fields
        self.states: dict[int, bytes] = {}  # by the number of cycles before; after every fifth, and after the last
        self.states_wrong: list[tuple[int, list[str]]] = []
        self.timers = 0
        controller, executor = new(policy, journal), world()
        while (moment := executor.wait(controller.next_timer_s())) is not None:
            actions = controller.cycle(*moment)
            self.timers += controller.next_timer_s() is not None
            self._look(controller, len(journal))
            if actions:
                executor.apply(actions)
        self.states[len(journal)] = saved_state.encode(controller, policy)

    def _look(self, live: Controller, cycles: int) -> None:
        again(self.folded, kept(self.journal.cycles[-1]))
        if wrong := differences(live, self.folded):
            self.folded_wrong.append((cycles, wrong))
        if cycles % 5 == 0:
            self.states[cycles] = saved_state.encode(live, self.policy)
        if cycles % 20 == 0:
            decoded = saved_state.decode(self.states[cycles], self.policy, self.journal)
            if wrong := differences(live, decoded, between=True):
                self.states_wrong.append((cycles, wrong))


@pytest.fixture(scope="module", params=sorted(policies()))
def lived(request: pytest.FixtureRequest) -> Lived:
    """For every policy; its tests come one after another, so that there is one run for all of them."""
    return Lived(find(request.param).bound())


def test_the_state_is_the_live_one_after_every_cycle(lived: Lived) -> None:
    assert lived.folded_wrong == []
    assert lived.timers > 20
    assert sum(cycle.plan is not None for cycle in lived.journal) > 20
    assert not lived.folded.decision_s, "the policy was not called"


def test_a_saved_state_is_the_live_one_and_decides_as_it_did(lived: Lived) -> None:
    assert lived.states_wrong == []
    policy, journal, states = lived.policy, lived.journal, lived.states
    cuts = [*range(5, len(journal) - 30, 60), len(journal)]
    for cut, until in pairwise(cuts):
        if cut == cuts[2]:
            until = len(journal)  # Of the others, each leads to the very state that the next one begins with.
        asks = MemoryJournal(journal.header)
        one, other = saved_state.decode(states[cut], policy, asks), saved_state.decode(states[cut], policy, journal)
        other.journal = MemoryJournal(journal.header)
        for cycle in journal.cycles[cut:until]:
            one.timers.pop_due(cycle.at_s, ())  # They are among the events.
            one.advance(cycle.at_s, cycle.events)
            one.next_timer_s()
            assert asks.cycles[-1] == cycle, "decided as it was"
            again(other, cycle)
        for controller in (one, other):
            assert saved_state.encode(controller, policy) == states[until]


def test_a_run_whose_controller_is_killed_again_and_again_is_the_same_run(lived: Lived, tmp_path: Path) -> None:
    policy, path = lived.policy, tmp_path / "j.db"
    executor = world()  # which lives on
    journal = open_to_append(path, header(policy))
    controller, saver = restore(journal, policy), StateSaver(journal, policy, events=20)
    kills = saves = 0
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        actions = controller.cycle(*moment)
        saves += saver.after_cycle(controller, len(moment[1]))
        if actions:
            executor.apply(actions)
        if len(journal) % 25 == 0:
            journal.close()
            journal = open_to_append(path, header(policy))
            controller, saver = restore(journal, policy), StateSaver(journal, policy, events=20)
            kills += 1
    assert [kept(c) for c in lived.journal] == list(journal)
    journal.close()
    assert kills > 8
    assert saves > kills


def wild(snapshot: Snapshot, _params: Params) -> Plan:
    """All that a plan can say, by dice, and now and then what it must not."""
    plan, dice = some.sharing_chaos(snapshot), snapshot.rng()
    views = sorted(snapshot.jobs.values(), key=lambda v: -v.number)  # not in the order of their names
    touched = {t.job for p in plan.put for t in p.tenants}
    ends = {v.id: "hopeless" for v in views if v.id not in touched and not v.verdict and dice.random() < 0.1}
    return replace(
        plan,
        put=tuple(p for p in plan.put if not any(t.job in ends for t in p.tenants)),
        drop=(*plan.drop, "nowhere") if dice.random() < 0.05 else plan.drop,
        ends=ends,
        tiers={v.id: dice.choice(list(Tier)[1:]) for v in views if v.state is JobState.PAUSED and dice.random() < 0.3},
        checkpoints={v.id: Tier.MEMORY for v in views if v.size and dice.random() < 0.2},
        reasons={**plan.reasons, "*": "the dice said so", **dict.fromkeys(ends, "no hope")},
        memos={v.id: [dice.random(), {"deep": [None, "x"]}] for v in views if dice.random() < 0.3},
        memo={"thrown": snapshot.decision},
        reviews={v.id: snapshot.now_s + 100 * dice.random() for v in views if dice.random() < 0.2},
    )


def by_dice(view: JobView, _now_s: float, _params: Params) -> tuple[Any, ...]:
    """A rank with all that ranks may have."""
    return (view.epoch, (float("inf") if view.number % 2 else 1.5, view.job.owner))


dice = Policy("dice", wild, Params, by_dice, "", "", "").bound()


class Anything(Harness):
    """Whatever becomes of the state, it shall come back."""

    def validate(self) -> None:
        self.controller.next_timer_s()  # As every loop does after a cycle: it drops moments that mean nothing any more.


# A history that fails is long anyway, and to shorten it takes minutes.
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(st.data())
def test_drawn_histories_come_back_from_cycles_and_from_saved_states(data: st.DataObject) -> None:
    nodes = data.draw(some.nodes())
    policy = data.draw(st.sampled_from([dice, find("las").bound(), find("fair").bound()]))
    harness = Anything(policy.decide, nodes, policy.order)
    harness.controller = Controller(empty_snapshot(nodes), harness._ask, policy.order, harness.journal, **policy.needs)
    some.play(harness, data.draw(some.histories(nodes, 30)), nodes)
    journal = MemoryJournal(harness.journal.header)
    journal.extend([kept(cycle) for cycle in harness.journal])
    controller = new(policy, journal, tuple(nodes), 0)
    cut = data.draw(st.integers(0, len(journal)))
    for number, cycle in enumerate(journal, 1):
        if number - 1 == cut:
            controller = saved_state.decode(saved_state.encode(controller, policy), policy, journal)
        controller.journal = MemoryJournal(journal.header)
        again(controller, cycle)
    assert_equal(harness.controller, controller, between=True)


# -- what is restored from ----------------------------------------------------------------------------------

FIFO = find("fifo").bound()


def queued(
    path: Path | str, *, saves: tuple[int, ...] = (), batches: int = 10, policy: BoundPolicy = FIFO
) -> Controller:
    """Batches of submissions, more than there is room for; the state saved after some of them."""
    nodes = tuple(cluster("2x4"))
    journal = open_to_append(path, Header(policy.policy.name, policy.settings, nodes))
    controller = restore(journal, policy)
    for n in range(len(journal) + 1, len(journal) + batches + 1):
        controller.cycle(float(n), [submitted(Job(f"j{n}-{i}"), float(n)) for i in range(20)])
        if n in saves:
            journal.save(saved_state.encode(controller, policy))
    controller.next_timer_s()
    journal.close()
    return controller


class Counting(MemoryJournal):
    """Counts what is read of it."""

    def __init__(self, source: SqliteJournal) -> None:
        super().__init__(source.header)
        self.extend(list(source))
        self._saved = tuple(source.saved())
        self.after_number = -1

    def after(self, number: int) -> Iterator[Cycle]:
        self.after_number = number
        return super().after(number)


def restored_after(path: Path, policy: BoundPolicy = FIFO) -> tuple[int, Controller]:
    """After which cycle a restore begins to fold, and what it comes to."""
    source = SqliteJournal(path)
    journal = Counting(source)
    source.close()
    controller = restore(journal, policy)
    return journal.after_number, controller


def spoil(path: Path, number: int, value: bytes) -> None:
    journal = open_to_append(path, Header("fifo"))
    assert isinstance(journal, SqliteJournal)
    check = checksum(number, value)
    journal._open().execute("UPDATE saved SET value = ?, crc = ? WHERE n = ?", (value, check, number))
    journal.close()


def test_a_controller_comes_back_from_every_kind_of_store(store: str) -> None:
    live = queued(store, saves=(8,))
    journal = open_to_append(store, header(FIFO))
    controller = restore(journal, FIFO)
    journal.close()
    assert_equal(live, controller, between=True)


def test_only_what_came_after_the_newest_saved_state_is_folded(tmp_path: Path) -> None:
    live = queued(tmp_path / "j.db", saves=(3, 6, 8))
    number, controller = restored_after(tmp_path / "j.db")
    assert number == 8
    assert_equal(live, controller, between=True)


@pytest.mark.parametrize("spoilt", [b"no state at all", b"\x94\x00\xa4fifo\xc4\x00\x80"])
def test_a_state_that_cannot_be_read_is_passed_over_for_an_older_one_or_for_all_cycles(
    tmp_path: Path, spoilt: bytes
) -> None:
    live = queued(tmp_path / "j.db", saves=(3, 8))
    for number, instead in ((8, 3), (3, 0)):
        spoil(tmp_path / "j.db", number, spoilt)
        begun, controller = restored_after(tmp_path / "j.db")
        assert begun == instead
        assert_equal(live, controller, between=True)


def test_a_state_of_another_policy_or_with_other_parameters_is_passed_over(tmp_path: Path) -> None:
    las = find("las").bound()
    queued(tmp_path / "j.db", saves=(8,), policy=las)
    assert restored_after(tmp_path / "j.db", las)[0] == 8
    assert restored_after(tmp_path / "j.db", find("las").bound({"promote": 7}))[0] == 0
    assert restored_after(tmp_path / "j.db", FIFO)[0] == 0


def test_a_state_of_other_code_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queued(tmp_path / "j.db", saves=(8,))
    saved_state.form.cache_clear()
    monkeypatch.setattr(saved_state, "FORMAT", saved_state.FORMAT + 1)
    assert restored_after(tmp_path / "j.db")[0] == 0
    saved_state.form.cache_clear()


def test_an_empty_journal_is_a_new_controller(tmp_path: Path) -> None:
    journal = open_to_append(tmp_path / "j.db", header(FIFO))
    controller = restore(journal, FIFO)
    assert_equal(controller, new(FIFO, journal))
    assert controller.journal is journal
    journal.close()


def test_cycles_that_are_gone_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    queued(tmp_path / "j.db", saves=(8,))
    journal = open_to_append(tmp_path / "j.db", header(FIFO))
    assert isinstance(journal, SqliteJournal)
    journal._open().execute("DELETE FROM cycle WHERE n > 6")
    with pytest.raises(JournalError, match="a state was saved after cycle 8, and its last cycle is 6"):
        restore(journal, FIFO)
    journal.close()


def test_a_journal_that_contradicts_itself_is_refused_by_its_cycle(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db", header(FIFO))
    journal.append(Cycle(1.0, (), Plan(drop=("nowhere",))))
    with pytest.raises(JournalError, match=r"j.db', cycle 1 at 1 s: it contradicts earlier cycles: 'nowhere'"):
        restore(journal, FIFO)
    journal.close()


def test_what_was_decided_stands_whether_or_not_the_policy_would_be_asked_today() -> None:
    journal = MemoryJournal(Header("fifo", nodes=tuple(cluster("1x2"))))
    journal.append(Cycle(1.0, (submitted(Job("a"), 1.0),)))  # It would be asked.
    journal.append(Cycle(2.0, (), Plan(wake=Wake(arrival=False, freed_gpus=None, epoch=False))))
    late = Plan((Partition("b", (Slice("n0", (1,)),), (Tenant("b", (1,)),)),), reasons={"b": "starts"})
    journal.append(Cycle(3.0, (submitted(Job("b"), 3.0),), late))  # It would not.
    journal.append(Cycle(4.0, (JobStarted(4.0, "b"),), replace(late, drop=("nowhere",)), ("the plan drops …",)))
    snapshot = restore(journal, FIFO).snapshot
    assert (snapshot.decision, list(snapshot.partitions)) == (2, ["b"])
    assert [v.state for v in snapshot.jobs.values()] == [JobState.WAITING, JobState.RUNNING]
    assert snapshot.wake == ALWAYS, "as after every refused plan"


def test_nodes_that_joined_are_known_for_submissions_to_come(tmp_path: Path) -> None:
    journal = open_to_append(tmp_path / "j.db", Header("fifo"))
    restore(journal, FIFO).cycle(1.0, [NodeJoined(1.0, Node("late", 2))])
    for save in (False, True):
        controller = restore(journal, FIFO)
        controller.cycle(2.0, [submitted(Job(f"j{save}", sizes=(2,)), 2.0)])
        (event,) = list(journal)[-1].events
        assert isinstance(event, JobSubmitted), "not refused"
        journal.save(saved_state.encode(controller, FIFO))
    journal.close()


# -- troubles -----------------------------------------------------------------------------------------------


def test_after_a_failed_append_a_restore_is_as_if_the_cycle_had_never_been(tmp_path: Path) -> None:
    live = queued(tmp_path / "smooth.db")
    queued(tmp_path / "j.db", batches=6)
    journal = open_to_append(tmp_path / "j.db", header(FIFO))
    assert isinstance(journal, SqliteJournal)
    controller = restore(journal, FIFO)
    (pages,) = journal._open().execute("PRAGMA page_count").fetchone()
    journal._open().execute(f"PRAGMA max_page_count = {pages}")
    batches = {n: [submitted(Job(f"j{n}-{i}"), float(n)) for i in range(20)] for n in range(7, 11)}
    with pytest.raises(JournalError, match="database or disk is full"):  # noqa: PT012 - at which it stops, SQLite knows
        for n, events in batches.items():
            controller.cycle(float(n), events)
    journal._open().execute("PRAGMA max_page_count = 100000")
    controller = restore(journal, FIFO)
    for later in range(n, 11):
        controller.cycle(float(later), batches[later])
    controller.next_timer_s()
    journal.close()
    assert_equal(live, controller)


def test_a_saver_saves_every_so_many_events_and_with_the_first_cycle_after_a_restore(tmp_path: Path) -> None:
    journal = open_to_append(tmp_path / "j.db", header(FIFO))
    controller, saver = restore(journal, FIFO), StateSaver(journal, FIFO, events=5)
    done = []
    for n in range(1, 12):
        controller.cycle(float(n), [])
        done.append(saver.after_cycle(controller, 2))
    assert [n for n, did in enumerate(done, 1) if did] == [3, 6, 9]
    assert [number for number, _state in journal.saved()] == [9, 6]
    assert StateSaver(journal, FIFO).after_cycle(controller, 1)
    journal.close()


def test_the_more_jobs_there_are_the_more_seldom_they_are_saved(tmp_path: Path) -> None:
    journal = open_to_append(tmp_path / "j.db", header(FIFO))
    controller, saver = restore(journal, FIFO), StateSaver(journal, FIFO, events=5)
    controller.cycle(1.0, [submitted(Job(f"j{i}"), 1.0) for i in range(50)])
    assert not saver.after_cycle(controller, 50)
    assert not saver.after_cycle(controller, 49)
    assert saver.after_cycle(controller, 1)
    journal.close()


def test_a_state_that_cannot_be_saved_stops_nothing(tmp_path: Path) -> None:
    journal = open_to_append(tmp_path / "j.db", header(FIFO))
    assert isinstance(journal, SqliteJournal)
    controller, saver = restore(journal, FIFO), StateSaver(journal, FIFO, events=1)
    noise = Random(0)  # which no compression makes small
    controller.cycle(1.0, [submitted(Job(f"j{i}", command=(noise.randbytes(450).hex(),)), 1.0) for i in range(100)])
    (pages,) = journal._open().execute("PRAGMA page_count").fetchone()
    journal._open().execute(f"PRAGMA max_page_count = {pages + 3}")
    assert not saver.after_cycle(controller, 1000)
    assert saver.trouble == f"journal '{journal.path}' cannot be written: database or disk is full"
    controller.cycle(2.0, [])
    journal._open().execute("PRAGMA max_page_count = 100000")
    assert saver.after_cycle(controller, 1000)
    assert saver.trouble == ""
    journal._open().execute("UPDATE writer SET epoch = 99")
    with pytest.raises(JournalLost):
        saver.after_cycle(controller, 1000)
    journal.close()
