"""A pause in memory, live: by which orders it is carried out, and what reports of it mean."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hocket.agent.protocol import ContinueRun, Hello, Order, Report, RunKey, RunLimits, StopRun, SuspendRun
from hocket.executors.agents.executor import AgentExecutor
from hocket.executors.agents.multi_node_exits import MultiNodeExits
from hocket.executors.agents.orders import Orders
from hocket.executors.agents.reconcile import Reconciliation
from hocket.executors.agents.reports_to_events import facts
from hocket.executors.agents.run_numbers import going, nodes_of
from hocket.executors.agents.sessions import Sessions
from hocket.model.action import Action, End, Pause, Resume, Store
from hocket.model.event import (
    Event,
    JobEnded,
    JobFailed,
    JobPaused,
    JobSaved,
    JobStarted,
    NodeLost,
    StateStored,
    WorkLost,
)
from hocket.model.job import Job, Kind, Launch
from hocket.model.partition import Holding, Partition, Tenant
from hocket.model.resources import Demand, Node, Slice
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import versioned
from hocket.model.view import Doing, JobState, JobView, SuspendedProcess, Tenancy, Tier
from hocket.testing.builders import snapshot

JOB = Job(
    "q", kind=Kind.QUERY, command=("hocket", "query", "SELECT 1", "--data", "d"), sizes=(1, 2),
    demand=Demand(cores=1.0, mem_mib=512.0), launch=Launch(grace_s=7.0),
)  # fmt: skip
NODE = Node("n0", cores=4.0, mem_mib=8192.0)
RUN = RunKey("q", 1)


def holding(threads: int = 1, node: str = "n0") -> Holding:
    return Holding("q", (Slice(node, cores=float(threads), mem_mib=512.0 * threads),), (threads,))


RUNNING = JobView(JOB, 0, 0.0, JobState.RUNNING, starts=1, size=1, tenancies=(Tenancy("", holding()),))
PAUSING = replace(RUNNING, state=JobState.PAUSING, tenancies=(Tenancy("", holding(), Doing.PAUSING),))
SUSPENDING = replace(PAUSING, storing=Tier.MEMORY)
PROCESS = SuspendedProcess("n0", 300.0, 1, unsaved_s=40.0)
SUSPENDED = replace(RUNNING, state=JobState.PAUSED, size=0, tenancies=(), tier=Tier.MEMORY, suspended=PROCESS, step=3)
STORING = replace(SUSPENDED, storing=Tier.DISK)
GOING_ON = replace(SUSPENDED, state=JobState.STARTING, tenancies=(Tenancy("", None, Doing.STARTING, holding(2)),))


def state_of(view: JobView) -> Snapshot:
    return replace(snapshot([NODE]), jobs=versioned([("q", view)]))


def orders_for(view: JobView, *actions: Action) -> list[Order]:
    """What an agent is told, and that nothing is true before it answers."""
    sessions = Sessions(lease_s=30.0)
    session = sessions.open("n0", "127.0.0.1", "s")
    executor = AgentExecutor(state_of(view), sessions, lambda: 0.0)
    executor.apply(actions)
    assert executor._ready == []
    return [numbered.order for numbered in sessions.orders(session, 0, 0.0)]


def hello(view: JobView, *runs: RunKey) -> tuple[list[Event], list[Order]]:
    """What comes of an agent that says hello with these runs."""
    state, sessions = state_of(view), Sessions(lease_s=30.0)
    session = sessions.open("n0", "127.0.0.1", "s")
    said = Hello(NODE, "127.0.0.1", runs=runs, jobs=("q",))
    found = Reconciliation(said, sessions, Orders(state, sessions, prepares=True), MultiNodeExits()).facts(state, 1.0)
    return found, [numbered.order for numbered in sessions.orders(session, 0, 0.0)]


def said(event: str, **fields: object) -> Report:
    return Report(RUN, 5, 1.0, event, dict(fields))


def test_a_process_is_suspended_where_its_state_is_to_stay_in_memory() -> None:
    assert orders_for(SUSPENDING, Pause("q", tier=Tier.MEMORY)) == [SuspendRun(RUN, 10.0)]
    assert orders_for(PAUSING, Pause("q", tier=Tier.DISK)) == [StopRun(RUN, 7.0)]


def test_a_job_that_ends_while_it_is_being_suspended_leaves() -> None:
    tenancies = (Tenancy("", holding(), Doing.ENDING),)
    ending = replace(SUSPENDING, tenancies=tenancies, verdict="stopped")
    assert orders_for(ending, End("q", "stopped")) == [StopRun(RUN, 7.0)]


def test_a_job_with_gpus_or_on_two_nodes_leaves() -> None:
    for slices in [(Slice("n0", (0,)),), (Slice("n0", cores=1.0), Slice("n1", cores=1.0))]:
        held = Tenancy("", Holding("q", slices, (1,) * len(slices)), Doing.PAUSING)
        (order,) = orders_for(replace(SUSPENDING, tenancies=(held,)), Pause("q", tier=Tier.MEMORY))
        assert isinstance(order, StopRun)


@pytest.mark.parametrize("tier", [Tier.DISK, Tier.NONE])
def test_what_the_plan_says_is_told_to_the_query(tier: Tier) -> None:
    assert orders_for(replace(PAUSING, keep=tier), Pause("q", tier=tier)) == [StopRun(RUN, 7.0, str(tier))]


def test_a_suspended_process_writes_its_state_and_ends_or_only_ends() -> None:
    assert orders_for(STORING, Store("q", Tier.DISK)) == [StopRun(RUN, 7.0, "disk")]
    dropped = replace(SUSPENDED, storing=Tier.NONE)
    assert orders_for(dropped, Store("q", Tier.NONE)) == [StopRun(RUN, 0.0, "none")]


def test_a_state_without_a_process_stays_where_it_is() -> None:
    on_disk = replace(SUSPENDED, suspended=None, tier=Tier.DISK)
    executor = AgentExecutor(state_of(on_disk), Sessions(lease_s=30.0), lambda: 0.0)
    executor.apply([Store("q", Tier.MEMORY)])
    assert executor._ready == [StateStored(0.0, "q", Tier.DISK)]


def test_it_goes_on_in_the_same_run_with_what_it_is_given() -> None:
    to = holding(2)
    resume = Resume("q", "", to, Partition("q", to.slices, (Tenant("q", (2,)),)))
    assert orders_for(GOING_ON, resume) == [ContinueRun(RUN, {"HOCKET_SIZE": "2"}, RunLimits(1024.0, 2.0))]


def test_reports_tell_when_it_is_so() -> None:
    paused = JobPaused(5.0, "q", tier=Tier.MEMORY, node="n0", mem_mib=312.5)
    assert facts(SUSPENDING, said("suspended", mem_mib=312.5), 5.0) == [paused]
    assert facts(SUSPENDED, said("suspended", mem_mib=312.5), 5.0) == []  # It was said twice.
    assert facts(GOING_ON, said("continued"), 5.0) == [JobStarted(5.0, "q", in_place=True)]
    assert facts(SUSPENDED, said("continued"), 5.0) == []
    assert facts(SUSPENDED, said("saved"), 5.0) == [JobSaved(5.0, "q")]


def test_a_process_that_left_as_it_was_told_has_its_state_on_disk() -> None:
    assert facts(STORING, said("exited", asked=True, saved_when_asked=True), 5.0) == [StateStored(5.0, "q", Tier.DISK)]


def test_one_that_did_not_write_falls_back_to_what_was_there() -> None:
    unwritten = said("exited", asked=True, saved_when_asked=False)
    lost = WorkLost(5.0, "q", 40.0, 0, "its process left memory without writing them", 3)
    assert facts(STORING, unwritten, 5.0) == [StateStored(5.0, "q", Tier.NONE), lost]
    before = replace(STORING, suspended=replace(PROCESS, on_disk=Tier.DISK))
    assert facts(before, unwritten, 5.0) == [StateStored(5.0, "q", Tier.DISK), lost]


@pytest.mark.parametrize("view", [SUSPENDED, GOING_ON], ids=["paused", "going on"])
@pytest.mark.parametrize(
    "report", [said("lost"), said("exited", signal="SIGKILL", asked=False)], ids=["lost", "killed"]
)
def test_a_process_that_is_lost_meanwhile_costs_a_run_and_what_it_had_not_saved(view: JobView, report: Report) -> None:
    failed, lost = facts(view, report, 5.0)
    assert isinstance(failed, JobFailed)
    assert (failed.own, failed.final) == (False, False)
    assert "while it was paused in memory" in failed.reason
    assert isinstance(lost, WorkLost)
    assert (lost.lost_s, lost.steps) == (40.0, 3)


def test_a_query_that_ends_by_itself_before_it_is_suspended_is_over() -> None:
    assert facts(SUSPENDING, said("exited", code=0, asked=False), 5.0) == [JobEnded(5.0, "q")]
    ended = said("exited", code=0, asked=False, peak_mib=90.0)
    assert facts(SUSPENDING, ended, 5.0) == [JobEnded(5.0, "q", peak_mib=90.0)]
    on_gpus = said("exited", code=0, asked=False, peak_mib=90.0, peak_gpu_mem_mib=2048.0)
    assert facts(SUSPENDING, on_gpus, 5.0) == [JobEnded(5.0, "q", peak_mib=90.0, peak_gpu_mib=2048.0)]


def test_an_agent_keeps_a_suspended_process_and_is_told_again_what_it_may_have_missed() -> None:
    assert going(SUSPENDED) == going(GOING_ON) == [RUN]
    assert nodes_of(SUSPENDED) == ["n0"]
    assert hello(SUSPENDED, RUN) == ([], [])
    assert hello(SUSPENDING, RUN) == ([], [SuspendRun(RUN, 10.0)])
    assert hello(STORING, RUN) == ([], [StopRun(RUN, 7.0, "disk")])
    assert hello(GOING_ON, RUN) == ([], [ContinueRun(RUN, {"HOCKET_SIZE": "2"}, RunLimits(1024.0, 2.0))])


@pytest.mark.parametrize("view", [SUSPENDED, STORING, GOING_ON], ids=["paused", "storing", "going on"])
def test_an_agent_that_does_not_have_it_any_more_has_lost_it(view: JobView) -> None:
    (failed, lost), orders = hello(view)
    assert isinstance(failed, JobFailed)
    assert isinstance(lost, WorkLost)
    assert orders == []


def test_a_run_begins_anew_where_the_process_ended_when_it_was_to_go_on() -> None:
    sessions = Sessions(lease_s=30.0)
    session = sessions.open("n0", "127.0.0.1", "s")
    executor = AgentExecutor(state_of(GOING_ON), sessions, lambda: 0.0)
    executor._orders.broken.agent_connected("n0", (), ())  # Its agent has said hello.
    executor.observe(state_of(replace(GOING_ON, suspended=None, tier=Tier.DISK)))
    executor.settle([StateStored(1.0, "q", Tier.DISK)])
    (numbered,) = sessions.orders(session, 0, 0.0)
    assert getattr(numbered.order, "run", None) == RunKey("q", 2)


def test_a_lost_node_takes_its_suspended_processes_along() -> None:
    sessions = Sessions(lease_s=30.0)
    clock = [0.0]
    executor = AgentExecutor(state_of(SUSPENDED), sessions, lambda: clock[0])
    found: list[Event] = []
    while not found and clock[0] < 60.0:
        clock[0] += 5.0
        moment = executor.wait(clock[0])
        assert moment is not None
        found += moment[1]
    assert [type(event) for event in found] == [NodeLost, WorkLost]


def test_when_the_controller_goes_down_a_suspended_process_leaves_too() -> None:
    sessions = Sessions(lease_s=30.0)
    session = sessions.open("n0", "127.0.0.1", "s")
    executor = AgentExecutor(state_of(SUSPENDED), sessions, lambda: 0.0)
    left = executor.stop_all(3.0)
    assert [n.order for n in sessions.orders(session, 0, 0.0)] == [StopRun(RUN, 3.0)]
    assert left() == ["q"]
    executor.observe(state_of(replace(SUSPENDED, suspended=None, tier=Tier.DISK)))
    assert left() == []
