"""Nodes and runs that are lost while a change is under way: no job waits for an event that cannot come any more."""

import pytest

from hocket.control.check import violations
from hocket.model.action import End, Prepare, Start
from hocket.model.event import JobAsked, JobFailed, JobRequest, JobSubmitted, NodeJoined, NodeLost, OwnerSet
from hocket.model.job import Job, Owner, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Demand, Node, Slice
from hocket.model.view import Hold
from hocket.policies import find
from hocket.testing.harness import Harness

NEVER = Wake(arrival=False, freed_gpus=None, epoch=False, overtaken=False)


def harness(policy="las", *nodes):
    return Harness.of(find(policy).bound(), nodes or [Node("n0", 2)])


def submit(world, *jobs):
    return world.tell(*(JobSubmitted(world.now_s, job) for job in jobs))


def kinds(actions):
    return [(type(a), a.job) for a in actions]


# -- ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [NodeLost(6.0, "n0"), JobFailed(6.0, "a", "its sidecar was lost", own=False)])
def test_a_job_whose_run_is_lost_while_it_is_being_ended_is_ended_again(lost):
    world = harness()
    submit(world, Job("a"))
    world.answer()
    assert kinds(world.tell(JobAsked(5.0, "a", JobRequest.STOP))) == [(End, "a")]
    assert kinds(world.tell(lost)) == [(End, "a")], "the run that was to answer the first one is lost"
    world.answer()
    assert not world.snapshot.jobs


def test_a_job_that_is_stopped_in_the_very_cycle_in_which_its_node_is_lost_is_ended():
    world = harness()
    submit(world, Job("a"))
    world.answer()
    assert kinds(world.tell(JobAsked(5.0, "a", JobRequest.STOP), NodeLost(5.0, "n0"))) == [(End, "a")]


def test_a_job_that_breaks_by_itself_while_it_is_being_ended_is_over_and_not_at_rest():
    world = harness()
    submit(world, Job("a", backoff_s=10.0), Job("b", after=("a",)))
    world.answer()
    world.tell(JobAsked(5.0, "a", JobRequest.STOP))
    assert kinds(world.tell(JobFailed(6.0, "a", "exit code 1"))) == [(End, "a")]
    assert world.snapshot.jobs["a"].held is None


# -- preparations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepared", [False, True])
def test_a_job_whose_node_is_lost_while_it_prepares_starts_elsewhere(prepared):
    world = harness("edf", Node("n0", 1))
    submit(world, Job("old", deadline_s=1e6))
    world.answer()
    (prepare,) = submit(world, Job("new", deadline_s=10.0, warm=True))
    assert kinds([prepare]) == [(Prepare, "new")]
    if prepared:
        world.answer(prepare)
    world.tell(NodeLost(5.0, "n0"))
    view = world.snapshot.jobs["new"]
    assert (view.preparing, view.prepared) == (False, False), "what stood ready is no more"
    assert kinds(world.tell(NodeJoined(6.0, Node("n1", 1)))) == [(Start, "new")]


def test_a_job_that_must_wait_for_another_place_too_prepares_there():
    world = harness("edf", Node("n0", 1), Node("n1", 1))
    submit(world, Job("first", deadline_s=1e6))
    world.answer()
    submit(world, Job("second", deadline_s=1e7))
    world.answer()
    assert kinds(submit(world, Job("new", deadline_s=10.0, warm=True))) == [(Prepare, "new")]
    (place,) = (s.node for p in world.snapshot.partitions.values() if p.tenants[0].job == "new" for s in p.slices)
    assert kinds(world.tell(NodeLost(5.0, place))) == [(Prepare, "new")]


# -- losses that come again and again -----------------------------------------------------------------------


def lose(world, at_s):
    return world.tell(JobFailed(at_s, "a", "its sidecar was lost", own=False))


def test_a_run_that_is_lost_once_starts_again_at_once():
    world = harness()
    submit(world, Job("a", retries=0, backoff_s=10.0))
    world.answer(at_s=1.0)
    assert kinds(lose(world, 1.1)) == [(Start, "a")]


def test_a_job_that_is_lost_again_and_again_soon_after_its_start_rests_longer_each_time_and_no_try_is_counted():
    world = harness()
    submit(world, Job("a", retries=0, backoff_s=10.0))
    world.answer(at_s=1.0)
    lose(world, 2.0)
    at_s = 2.0
    for rest_s in (10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0):
        world.answer(at_s=at_s)
        at_s += 1.0
        assert lose(world, at_s) == []
        assert world.snapshot.jobs["a"].held is Hold.RESTS
        assert f"its sidecar was lost; starts again after {rest_s:g} s" in world.snapshot.jobs["a"].reason
        at_s += rest_s
        assert world.controller.next_timer_s() == at_s
        assert kinds(world.tell(at_s=at_s)) == [(Start, "a")]
    assert world.snapshot.jobs["a"].crashes == 0


def test_whatever_its_backoff_a_job_that_is_lost_again_and_again_rests_for_a_second():
    world = harness()
    submit(world, Job("a", retries=3, backoff_s=0.0))
    assert kinds(lose(world, 1.0)) == [(Start, "a")]
    for at_s in (1.5, 3.0, 4.5):
        assert lose(world, at_s) == []
        assert world.controller.next_timer_s() == at_s + 1.0
        assert kinds(world.tell(at_s=at_s + 1.0)) == [(Start, "a")]


def test_a_job_that_is_lost_after_it_has_run_for_long_starts_again_at_once_however_often_it_was():
    world = harness()
    submit(world, Job("a", retries=0, backoff_s=10.0))
    for at_s in range(1000, 20_000, 1000):
        world.answer(at_s=at_s - 601.0)
        assert kinds(lose(world, float(at_s))) == [(Start, "a")]


def test_a_job_that_is_lost_before_it_has_started_rests_too():
    world = harness()
    submit(world, Job("a", backoff_s=10.0))
    assert kinds(lose(world, 1.0)) == [(Start, "a")]
    assert lose(world, 100.0) == []
    assert world.controller.next_timer_s() == 110.0


def test_lost_nodes_delay_no_job():
    world = harness()
    submit(world, Job("a", retries=0, backoff_s=10.0))
    for n in range(5):
        world.answer(at_s=2.0 * n)
        world.tell(NodeLost(2.0 * n + 0.5, "n0"))
        assert kinds(world.tell(NodeJoined(2.0 * n + 1.0, Node("n0", 2)))) == [(Start, "a")]


def test_a_job_that_broke_by_itself_and_is_lost_once_starts_again_at_once():
    world = harness()
    submit(world, Job("a", backoff_s=10.0))
    world.answer(at_s=1.0)
    world.tell(JobFailed(2.0, "a", "exit code 1"))
    world.tell(at_s=12.0)
    world.answer(at_s=12.0)
    assert kinds(lose(world, 13.0)) == [(Start, "a")]


def test_a_task_that_falls_back_shares_its_gpu_as_before():
    """Its move waited for another job to leave, and the node it was to go to is lost."""
    half = Demand(1, gpu_share=0.5)
    graph = Job("g", tasks=TaskGraph((Task("t", half), Task("u", half))))

    def gpu(node, i, task):
        return Partition(f"{node}/{i}", (Slice(node, (i,)),), (Tenant("g", (1,), task),), Sharing.STACKED)

    other = Partition("a", (Slice("n1", (0,)),), (Tenant("a", (1,)),))
    plans = [
        Plan((gpu("n0", 0, "t"), gpu("n0", 1, "u"), other), reasons={"*": "so"}, wake=NEVER),
        Plan((gpu("n1", 0, "t"),), drop=("n0/0", "a"), reasons={"*": "so"}, wake=NEVER),
    ]
    world = Harness(lambda _s: plans.pop(0) if plans else Plan(wake=NEVER), [Node("n0", 3), Node("n1", 2)])
    submit(world, graph, Job("a"))
    world.settle()
    world.tell(OwnerSet(1.0, Owner("any")))  # The policy is asked: "a" is told to leave, and "t" waits for that.
    world.tell(NodeLost(2.0, "n1"))
    snapshot = world.snapshot
    assert [(p.sharing, p.tenants[0].task) for p in snapshot.partitions.values()] == [
        (Sharing.STACKED, "u"),
        (Sharing.STACKED, "t"),
    ]
    assert violations(snapshot, find("gandiva").bound().decide(snapshot)) == []  # It places tasks, and finds it there.
