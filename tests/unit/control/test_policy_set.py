"""Another policy decides from some time on: it gets a valid state, and a journal says which policy decided when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.control.test_restore import assert_equal, header, kept, world

from hocket.control import saved_state
from hocket.control.controller import Controller
from hocket.control.journal import JournalError, MemoryJournal, open_to_append
from hocket.control.ports import Cycle, Header
from hocket.control.replay import replay
from hocket.control.restore import again, restore
from hocket.control.saved_state import StateSaver
from hocket.model.event import JobSubmitted, PolicySet
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies import find, policies
from hocket.policies.registry import BoundPolicy, bind
from hocket.testing.builders import cluster
from hocket.testing.invariants import broken_invariants

NAMES = sorted(policies())
EVERY_POLICY_AFTER_ANOTHER = pytest.mark.parametrize(("first", "then"), [*pairwise(NAMES), (NAMES[-1], NAMES[0])])
SET_S = 5000.0  # while a node is lost
UNTIL_S = 7500.0  # It has come back before.


def new(policy: BoundPolicy, journal: MemoryJournal) -> Controller:
    start = empty_snapshot(journal.header.nodes, journal.header.seed)
    return Controller(start, policy.decide, policy.order, journal, **policy.needs, bind=bind)


def lived(first: str, then: str) -> list[Cycle]:
    """A simulated run whose policy is changed; its controller comes back the same from every cycle after that."""
    policy = find(first).bound()
    settings = msgspec.json.decode(msgspec.json.encode(find(then).bound().settings))  # as a journal has them
    journal = MemoryJournal(header(policy))
    controller, executor, restored = new(policy, journal), world(UNTIL_S), new(policy, MemoryJournal(header(policy)))
    is_set = False
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        now_s, events = moment
        if not is_set and now_s >= SET_S:
            events, is_set = [*events, PolicySet(now_s, then, settings)], True
        actions = controller.cycle(now_s, events)
        controller.next_timer_s()
        again(restored, kept(journal.cycles[-1]))
        if is_set:
            assert not broken_invariants(controller.snapshot)
            assert_equal(controller, restored)
        if len(journal) % 20 == 0:
            state = saved_state.encode(controller, policy)
            assert_equal(controller, saved_state.decode(state, policy, journal, bind), between=True)
        executor.apply(actions)
    assert controller.policy_set is not None
    assert (controller.policy_set.policy, controller.policy_set.params) == (then, settings)
    return [kept(cycle) for cycle in journal]


@EVERY_POLICY_AFTER_ANOTHER
def test_any_policy_goes_on_where_another_was(first: str, then: str) -> None:
    cycles = lived(first, then)
    decided = [c for c in cycles if c.plan is not None and c.at_s > SET_S]
    assert len(decided) > 5
    assert not any(c.refused for c in decided)
    found = replay(header(find(first).bound()), cycles, find(first).bound())
    assert found.difference is None
    assert (found.cycles, found.policies) == (len(cycles), (first, then))


def test_it_is_followed_through_kills_from_cycles_and_from_saved_states(tmp_path: Path) -> None:
    uninterrupted = lived("las", "fair")
    policy, path, executor = find("las").bound(), tmp_path / "j.db", world(UNTIL_S)
    journal = open_to_append(path, header(policy))
    controller, saver = restore(journal, policy, bind=bind), StateSaver(journal, policy, events=20)
    followed = 0
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        now_s, events = moment
        if not controller.policy_set and now_s >= SET_S:
            events = [*events, PolicySet(now_s, "fair", find("fair").bound().settings)]
        actions = controller.cycle(now_s, events)
        saver.after_cycle(controller, len(events))
        executor.apply(actions)
        if len(journal) % 20 == 0:
            journal.close()
            journal = open_to_append(path, header(policy))
            controller, saver = restore(journal, policy, bind=bind), StateSaver(journal, policy, events=20)
            followed += controller.policy_set is not None
    assert followed > 3
    assert list(journal) == uninterrupted
    journal.close()


def queued(policy: str) -> tuple[Controller, MemoryJournal]:
    """Three jobs of two owners for two GPUs."""
    bound = find(policy).bound()
    journal = MemoryJournal(Header(policy, bound.settings, tuple(cluster("1x2"))))
    controller = new(bound, journal)
    jobs = [Job("a1", "ana"), Job("a2", "ana"), Job("b1", "bob")]
    controller.cycle(1.0, [JobSubmitted(1.0, job) for job in jobs])
    return controller, journal


def test_what_the_new_one_reads_is_kept_from_then_on() -> None:
    controller, _journal = queued("fifo")
    assert not controller.snapshot.usage.data(), "fifo reads no usage, so it is not summed up"
    controller.cycle(2.0, [PolicySet(2.0, "fair")])
    assert controller.snapshot.usage["ana"].gpus == 2
    assert not broken_invariants(controller.snapshot)


def test_waiting_jobs_are_new_to_it_and_the_last_ones_notes_are_gone() -> None:
    controller, journal = queued("las")
    assert journal.cycles[-1].plan is not None
    assert controller.snapshot.memo is not None
    seen: list[Snapshot] = []

    def watched(name: str, settings: dict[str, object]) -> BoundPolicy:
        def decide(snapshot: Snapshot) -> Plan:
            seen.append(snapshot)
            return Plan()

        return replace(bind(name, settings), decide=decide)

    controller.bind = watched
    controller.cycle(2.0, [PolicySet(2.0, "fifo")])
    (snapshot,) = seen
    assert (snapshot.memo, snapshot.arrived, snapshot.due) == (None, ("b1",), ())
    assert {view.rank for view in snapshot.jobs.values()} == {(0,)}
    assert sorted(snapshot.partitions) == ["a1", "a2"], "running jobs continue"


def test_a_controller_that_knows_no_others_keeps_its_own() -> None:
    controller, journal = queued("fifo")
    controller.bind = None
    controller.cycle(2.0, [PolicySet(2.0, "fair")])
    assert controller.policy_set is None
    plan = journal.cycles[-1].plan
    assert plan is not None
    assert plan.reasons == {"*": "waits: 'b1' is first in line and does not fit yet"}, "so says fifo"


def test_one_that_is_unknown_by_now_is_named(tmp_path: Path) -> None:
    bound = find("fifo").bound()
    journal = open_to_append(tmp_path / "j.db", Header("fifo", bound.settings))
    journal.append(Cycle(1.0, (PolicySet(1.0, "gone_since"),), Plan()))
    with pytest.raises(JournalError, match="cycle 1 at 1 s: policy 'gone_since' is unknown"):
        restore(journal, bound, bind=bind)
    journal.close()


def test_a_replay_under_another_policy_keeps_that_one() -> None:
    cycles = lived("fifo", "las")
    found = replay(header(find("fifo").bound()), cycles, find("srtf").bound())
    assert found.difference is not None
    assert found.difference.at_s < SET_S
    assert found.policies == ("srtf",)
