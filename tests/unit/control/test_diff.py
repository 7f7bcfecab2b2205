"""What is to be done next: pure, in order, and only what can be done now. Whole stories are in tests/scenarios."""

from __future__ import annotations

from typing import Any

from hocket.control.check import examine
from hocket.control.commit import adopt, issue
from hocket.control.diff import diff
from hocket.control.fold import fold
from hocket.control.state import State
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.event import JobPaused, JobPrepared, JobStarted, JobSubmitted
from hocket.model.job import ONE_GPU, Job, Task, TaskGraph
from hocket.model.partition import EPOCH, Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Node, Slice
from hocket.model.snapshot import empty_snapshot
from hocket.model.view import Tier


def state_of(*jobs: Job, nodes: int = 4, gpus: int = 2) -> State:
    state = State(empty_snapshot([Node(f"n{i}", gpus) for i in range(nodes)]), lambda _view, _now_s: ())
    for job in jobs:
        fold(state, [JobSubmitted(0.0, job)])
    return state


def on(job: str, node: str, *gpus: int, **more: Any) -> Partition:
    return Partition(job, (Slice(node, gpus),), (Tenant(job, (len(gpus),), **more),))


def planned(state: State, *put: Partition, drop: tuple[str, ...] = (), **more: Any) -> list[Action]:
    """Adopt a plan, and say what is to be done."""
    plan = Plan(put, drop, **{"reasons": {"*": "so"}, **more})
    found, capacity = examine(state.snapshot(), plan)
    assert found == []
    adopt(state, plan, capacity)
    return told(state, plan)


def told(state: State, plan: Plan | None = None) -> list[Action]:
    before = state.snapshot()
    actions, settled = diff(before, plan)
    assert (actions, settled) == diff(before, plan), "diff is pure"
    issue(state, actions, settled)
    return actions


def running(state: State, *put: Partition) -> State:
    for action in planned(state, *put):
        fold(state, [JobStarted(0.0, action.job)])
    assert told(state) == []
    return state


def kinds(actions: list[Action]) -> list[tuple[str, str]]:
    return [(type(a).__name__, a.job) for a in actions]


ELASTIC = {"sizes": (1, 2)}


def test_first_prepare_then_what_frees_then_what_takes() -> None:
    state = running(
        state_of(
            Job("stay"),
            Job("shrink", **ELASTIC),
            Job("grow", **ELASTIC),
            Job("leave"),
            Job("new"),
            Job("warm", warm=True),
        ),
        on("stay", "n0", 0),
        on("shrink", "n1", 0, 1),
        on("grow", "n2", 0),
        on("leave", "n3", 0),
    )
    actions = planned(
        state,
        on("grow", "n2", 0, 1),
        on("new", "n0", 1),
        on("warm", "n3", 0),
        on("shrink", "n1", 0),
        drop=("leave",),
        checkpoints={"stay": Tier.MEMORY},
    )
    # `leave` works on until its warm heir is prepared.
    assert kinds(actions) == [
        ("Prepare", "warm"),
        ("Checkpoint", "stay"),
        ("Resize", "shrink"),
        ("Resize", "grow"),
        ("Start", "new"),
    ]
    fold(state, [JobPrepared(1.0, "warm")])
    assert told(state) == [Pause("leave")]
    assert told(state) == [], "it was told already"
    fold(state, [JobPaused(2.0, "leave")])
    assert kinds(told(state)) == [("Start", "warm")]


def test_a_warm_job_that_need_not_wait_starts_at_once() -> None:
    state = state_of(Job("warm", warm=True))
    assert kinds(planned(state, on("warm", "n0", 0))) == [("Start", "warm")]


def test_a_job_that_is_as_planned_is_left_alone() -> None:
    state = running(state_of(Job("a")), on("a", "n0", 0))
    assert planned(state, on("a", "n0", 0)) == []
    assert not state.unsettled


def test_another_boundary_is_a_change_too() -> None:
    state = running(state_of(Job("a")), on("a", "n0", 0))
    (action,) = planned(state, on("a", "n0", 0, boundary=EPOCH))
    assert isinstance(action, Resize)
    assert action.to.boundary == EPOCH


def test_another_place_of_the_same_size_is_a_move() -> None:
    state = running(state_of(Job("a")), on("a", "n0", 0))
    (action,) = planned(state, on("a", "n1", 1))
    assert isinstance(action, Move)


def test_a_paused_job_resumes_and_its_state_goes_where_the_plan_wants_it() -> None:
    state = running(state_of(Job("a")), on("a", "n0", 0))
    assert planned(state, drop=("a",), tiers={"a": Tier.MEMORY}) == [Pause("a", tier=Tier.MEMORY)]
    fold(state, [JobPaused(1.0, "a", tier=Tier.MEMORY)])
    assert told(state) == []
    assert planned(state, tiers={"a": Tier.DISK}) == [Store("a", Tier.DISK)]
    (action,) = planned(state, on("a", "n1", 0))
    assert isinstance(action, Resume)


def test_a_pause_waits_for_the_boundary_it_was_started_with() -> None:
    state = running(state_of(Job("a")), on("a", "n0", 0, boundary=EPOCH))
    assert planned(state, drop=("a",)) == [Pause("a", boundary=EPOCH)]


def test_a_job_that_shall_end_is_told_once() -> None:
    state = running(state_of(Job("a"), Job("b")), on("a", "n0", 0))
    ends = {"ends": {"a": "hopeless"}, "reasons": {"a": "it stalls", "b": "next"}}
    assert planned(state, on("b", "n0", 0), drop=("a",), **ends) == [End("a", "hopeless")]
    assert told(state) == []


def test_a_ring_of_movers_is_broken_by_one_of_them_stepping_aside() -> None:
    jobs = [Job(name) for name in "abcd"]
    state = running(state_of(*jobs, nodes=4, gpus=1), *(on(j.id, f"n{i}", 0) for i, j in enumerate(jobs)))
    # a, b and c go round; d waits for the ring, and is not the one to step aside.
    actions = planned(state, on("d", "n0", 0), on("a", "n1", 0), on("b", "n2", 0), on("c", "n3", 0))
    assert len(actions) == 1
    assert isinstance(actions[0], Pause)
    assert told(state) == [], "one is enough"
    fold(state, [JobPaused(1.0, actions[0].job)])
    assert kinds(told(state))[0][0] == "Move"


def test_prepare_is_said_once() -> None:
    state = running(state_of(Job("a"), Job("warm", warm=True)), on("a", "n0", 0))
    assert planned(state, on("warm", "n0", 0), drop=("a",)) == [Prepare("warm")]
    assert told(state) == []


def task_on(task: str, gpu: int) -> Partition:
    return Partition(f"g/{task}", (Slice("n0", (gpu,)),), (Tenant("g", (1,), task),))


def test_a_job_is_not_prepared_when_one_of_its_tasks_starts() -> None:
    graph = Job("g", tasks=TaskGraph((Task("t", ONE_GPU), Task("u", ONE_GPU))), warm=True)
    state = running(state_of(Job("a"), graph), on("a", "n0", 0))
    # Task t waits for a's GPU. Task u does not, so nothing is prepared, and a leaves at once.
    actions = planned(state, task_on("t", 0), task_on("u", 1), drop=("a",))
    assert [(type(x).__name__, x.job, getattr(x, "task", "")) for x in actions] == [
        ("Pause", "a", ""),
        ("Start", "g", "u"),
    ]
    fold(state, [JobStarted(1.0, "g", "u")])
    assert told(state) == []
    fold(state, [JobPaused(2.0, "a")])
    assert [(type(x).__name__, x.job, getattr(x, "task", "")) for x in told(state)] == [("Start", "g", "t")]


def test_a_job_whose_other_task_runs_is_not_prepared() -> None:
    graph = Job("g", tasks=TaskGraph((Task("t", ONE_GPU), Task("u", ONE_GPU))), warm=True)
    state = state_of(Job("a"), graph)
    planned(state, on("a", "n0", 0), task_on("u", 1))
    fold(state, [JobStarted(0.0, "a"), JobStarted(0.0, "g", "u")])
    assert planned(state, task_on("t", 0), drop=("a",)) == [Pause("a")]
    assert not state.jobs.live["g"].preparing


def test_a_job_of_which_every_task_must_wait_is_prepared_once() -> None:
    graph = Job("g", tasks=TaskGraph((Task("t", ONE_GPU), Task("u", ONE_GPU))), warm=True)
    state = running(state_of(Job("a", sizes=(2,)), graph), on("a", "n0", 0, 1))
    assert planned(state, task_on("t", 0), task_on("u", 1), drop=("a",)) == [Prepare("g")]
    assert told(state) == []
    fold(state, [JobPrepared(1.0, "g")])
    assert told(state) == [Pause("a")]
    fold(state, [JobPaused(2.0, "a")])
    assert kinds(told(state)) == [("Start", "g"), ("Start", "g")]


def test_a_checkpoint_names_the_boundary() -> None:
    state = running(state_of(Job("a")), on("a", "n0", 0, boundary=EPOCH))
    assert planned(state, checkpoints={"a": Tier.DISK}) == [Checkpoint("a", Tier.DISK, EPOCH)]


def test_a_start_names_all_tenants_of_its_partition() -> None:
    state = state_of(Job("a"), Job("b"))
    pack = Partition("p", (Slice("n0", (0,)),), (Tenant("a", (1,)), Tenant("b", (1,))), sharing="packed")  # type: ignore[arg-type]
    actions = planned(state, pack)
    assert all(isinstance(a, Start) and a.partition == pack for a in actions)
