"""A paused job whose process keeps its memory: when it is so, how it goes on, makes room for others, or is lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.control.test_diff import planned, told

from hocket.control.commit import commit, next_actions
from hocket.control.fold import fold
from hocket.control.state import State
from hocket.model.action import Action, Pause, Resume, Start, Store
from hocket.model.document import decode, encode, to_document
from hocket.model.event import (
    JobEnded,
    JobFailed,
    JobPaused,
    JobSaved,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    ProgressReported,
    StateStored,
)
from hocket.model.job import Job, Kind
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.rebuild import from_document
from hocket.model.resources import Demand, Node, Slice
from hocket.model.snapshot import empty_snapshot
from hocket.model.view import JobState, SuspendedProcess, Tier
from hocket.policies import Draft
from hocket.testing.invariants import broken_indices, broken_invariants

REPORT = {"state_mib": 10.0, "redo_s": 20.0, "write_s": 0.5, "read_s": 0.2, "process_mib": 300.0}


def query(name: str) -> Job:
    return Job(name, kind=Kind.QUERY, sizes=(1, 2), demand=Demand(cores=1.0, mem_mib=400.0))


def on(job: str, node: str = "n0", size: int = 1, mem_mib: float = 400.0) -> Partition:
    return Partition(job, (Slice(node, cores=float(size), mem_mib=mem_mib * size),), (Tenant(job, (size,)),))


def running(*names: str, reports: bool = True, nodes: int = 2) -> State:
    """Queries that run on n0, and have said what their state takes; each node has four cores and 1,000 MiB."""
    machines = [Node(f"n{i}", cores=4.0, mem_mib=1000.0) for i in range(nodes)]
    state = State(empty_snapshot(machines), lambda _view, _now_s: ())
    fold(state, [JobSubmitted(0.0, query(name)) for name in ("a", "b", "c")])
    for action in planned(state, *(on(name) for name in names)):
        fold(state, [JobStarted(0.0, action.job, attempt=1)])
    if reports:
        fold(state, [ProgressReported(1.0, name, 0, REPORT, step=1) for name in names])
    assert told(state) == []
    return state


def suspended(*names: str) -> State:
    state = running(*names)
    assert planned(state, drop=names) == [Pause(name, tier=Tier.MEMORY) for name in names]
    fold(state, [JobPaused(9.0, name, tier=Tier.MEMORY, node="n0", mem_mib=300.0) for name in names])
    assert told(state) == []
    sound(state)
    return state


def sound(state: State) -> None:
    assert broken_invariants(state.snapshot()) + broken_indices(state) == []


def pause_of(actions: list[Action]) -> Tier:
    (pause,) = [action for action in actions if isinstance(action, Pause)]
    return pause.tier


def test_a_query_that_is_paused_stays_in_memory_where_there_is_room() -> None:
    state = suspended("a")
    view = state.jobs.live["a"]
    assert (view.state, view.tier, view.storing) == (JobState.PAUSED, Tier.MEMORY, None)
    assert view.suspended == SuspendedProcess("n0", 300.0, 1, Tier.NONE, 9.0)
    assert state.capacity["n0"].cores == 4.0
    assert state.capacity["n0"].mem_mib == 1000.0  # The plan may have it: the process makes room then.
    assert state.leaving.live == {"a/": (Slice("n0", mem_mib=300.0),)}


@pytest.mark.parametrize(
    ("put", "tier"),
    [
        (on("c", mem_mib=700.0), Tier.MEMORY),  # What is left is enough for it.
        (on("c", mem_mib=701.0), Tier.DISK),
    ],
)
def test_what_the_plan_gives_to_others_is_no_room(put: Partition, tier: Tier) -> None:
    assert pause_of(planned(running("a"), put, drop=("a",))) is tier


def test_those_that_are_paused_together_share_the_room() -> None:
    pauses = planned(running("a", "b"), on("c", mem_mib=500.0), drop=("a", "b"))
    assert [action.tier for action in pauses if isinstance(action, Pause)] == [Tier.MEMORY, Tier.DISK]


def test_a_job_that_never_said_what_its_state_takes_is_not_suspended_unless_the_plan_says_so() -> None:
    assert pause_of(planned(running("a", reports=False), drop=("a",))) is Tier.DISK
    assert pause_of(planned(running("a", reports=False), drop=("a",), tiers={"a": Tier.MEMORY})) is Tier.MEMORY


def test_also_a_plan_keeps_no_more_in_memory_than_there_is() -> None:
    put = on("c", mem_mib=701.0)
    assert pause_of(planned(running("a"), put, drop=("a",), tiers={"a": Tier.MEMORY})) is Tier.DISK


@pytest.mark.parametrize("tier", [Tier.DISK, Tier.NONE])
def test_the_plan_overrides_the_cost_model(tier: Tier) -> None:
    assert pause_of(planned(running("a"), drop=("a",), tiers={"a": tier})) is tier


def test_both_ways_to_commit_a_pause_choose_the_same_place() -> None:
    state = running("a")
    plan = Plan(drop=("a",), reasons={"a": "so"})
    assert commit(state, plan, state.capacity.give(on("a").slices)) == [Pause("a", tier=Tier.MEMORY)]


def test_of_a_job_with_gpus_the_plan_is_told_to_the_executor_as_it_is() -> None:
    state = State(empty_snapshot([Node("n0", 1)]), lambda _view, _now_s: ())
    fold(state, [JobSubmitted(0.0, Job("g"))])
    planned(state, Partition("g", (Slice("n0", (0,)),), (Tenant("g", (1,)),)))
    fold(state, [JobStarted(0.0, "g")])
    assert pause_of(planned(state, drop=("g",), tiers={"g": Tier.MEMORY})) is Tier.MEMORY


def test_it_goes_on_in_its_process_also_with_another_size() -> None:
    state = suspended("a")
    (resume,) = planned(state, on("a", size=2))
    assert isinstance(resume, Resume)
    fold(state, [JobStarted(20.0, "a", in_place=True)])
    view = state.jobs.live["a"]
    assert (view.state, view.size, view.starts, view.suspended, view.tier) == (JobState.RUNNING, 2, 1, None, Tier.NONE)
    assert view.unsaved_at(25.0)[0] == 9.0 + 5.0  # The time in which it was suspended is no work.
    assert not state.leaving.live
    sound(state)


def test_on_another_node_it_goes_on_from_disk() -> None:
    state = suspended("a")
    assert planned(state, on("a", "n1")) == [Store("a", Tier.DISK)]
    assert told(state) == []  # It is told once.
    fold(state, [StateStored(11.0, "a", Tier.DISK)])
    (resume,) = told(state)
    assert isinstance(resume, Resume)
    fold(state, [JobStarted(12.0, "a", attempt=2)])
    assert state.jobs.live["a"].starts == 2
    sound(state)


def test_only_a_query_changes_its_size_in_its_process() -> None:
    state = suspended("a")
    view = state.jobs.live["a"]
    state.put_view(view, replace(view, job=replace(view.job, kind=Kind.TRAINING)))
    assert planned(state, on("a", size=2)) == [Store("a", Tier.DISK)]


def test_a_job_that_needs_the_memory_gets_it_once_enough_is_on_disk() -> None:
    state = suspended("a", "b")
    assert planned(state, on("c", mem_mib=600.0)) == [Store("a", Tier.DISK)]  # One of them is enough.
    assert told(state) == []
    sound(state)
    fold(state, [StateStored(10.0, "a", Tier.DISK)])
    (start,) = told(state)
    assert isinstance(start, Start)
    assert start.job == "c"
    assert state.jobs.live["b"].suspended is not None
    sound(state)


def test_a_plan_moves_it_to_disk_or_drops_it() -> None:
    for tier in (Tier.DISK, Tier.NONE):
        state = suspended("a")
        assert planned(state, tiers={"a": tier}) == [Store("a", tier)]
        assert state.jobs.live["a"].storing is tier
        fold(state, [StateStored(10.0, "a", tier)])
        view = state.jobs.live["a"]
        assert (view.tier, view.suspended, view.storing) == (tier, None, None)
        assert view.state is (JobState.PAUSED if tier is Tier.DISK else JobState.WAITING)
        sound(state)


def test_it_leaves_a_node_that_is_drained() -> None:
    state = suspended("a")
    fold(state, [NodeDrained(10.0, "n0")])
    assert next_actions(state) == [Store("a", Tier.DISK)]


def test_a_job_that_is_suspended_when_its_node_has_been_drained_goes_to_disk() -> None:
    state = running("a")
    assert pause_of(planned(state, drop=("a",))) is Tier.MEMORY
    fold(state, [NodeDrained(8.0, "n0")])
    assert next_actions(state) == []
    fold(state, [JobPaused(9.0, "a", tier=Tier.MEMORY, node="n0", mem_mib=300.0)])
    assert next_actions(state) == [Store("a", Tier.DISK)]


def test_a_job_that_is_being_stored_goes_on_when_that_is_done_and_is_told_once() -> None:
    state = suspended("a")
    assert planned(state, tiers={"a": Tier.DISK}) == [Store("a", Tier.DISK)]
    assert planned(state, tiers={"a": Tier.DISK}) == []
    assert planned(state, on("a")) == []  # Its process is about to end.
    fold(state, [StateStored(10.0, "a", Tier.DISK)])
    (resume,) = told(state)
    assert isinstance(resume, Resume)


def test_where_room_was_given_away_while_it_was_being_suspended_it_goes_to_disk() -> None:
    state = running("a")
    assert pause_of(planned(state, drop=("a",))) is Tier.MEMORY
    planned(state, on("c", mem_mib=900.0))
    fold(state, [JobPaused(9.0, "a", tier=Tier.MEMORY, node="n0", mem_mib=300.0)])
    assert told(state) == [Store("a", Tier.DISK)]
    sound(state)


@pytest.mark.parametrize("saved", [False, True])
def test_a_lost_process_falls_back_to_what_is_on_disk(saved: bool) -> None:
    for lost in (JobFailed(12.0, "a", "its sidecar was lost", own=False), NodeLost(12.0, "n0")):
        state = suspended("a")
        if saved:
            fold(state, [JobSaved(10.0, "a")])
            assert state.jobs.live["a"].tier is Tier.MEMORY  # It is in both.
        fold(state, [lost])
        view = state.jobs.live["a"]
        expected = (JobState.PAUSED, Tier.DISK) if saved else (JobState.WAITING, Tier.NONE)
        assert (view.state, view.tier, view.suspended, view.failures) == (*expected, None, 1)
        sound(state)
        (action,) = planned(state, on("a", "n1"))
        assert isinstance(action, Resume if saved else Start)


def test_a_suspended_job_that_ends_leaves_nothing() -> None:
    state = suspended("a")
    fold(state, [JobEnded(12.0, "a", "stopped")])
    assert not state.leaving.live
    sound(state)


def test_a_document_has_its_suspended_processes() -> None:
    before = suspended("a").snapshot()
    again = from_document(decode(encode(to_document(before))))
    assert again.jobs["a"].suspended == before.jobs["a"].suspended
    assert again.leaving.data() == before.leaving.data()


def test_a_draft_places_it_on_its_node_though_another_is_fuller() -> None:
    state = suspended("a")
    planned(state, on("c", "n1"))
    draft = Draft(state.snapshot())
    assert draft.start(state.jobs.live["a"], "starts", 1)
    (partition,) = draft.plan().put
    assert [part.node for part in partition.slices] == ["n0"]
