"""Owners' quotas: what counts against them, and that every policy keeps to them and says so."""

from __future__ import annotations

import pytest

from hocket.control.check import examine, violations
from hocket.control.commit import adopt
from hocket.control.fold import fold
from hocket.control.state import State
from hocket.executors.simulated import simulate
from hocket.model.action import Pause, Resume, Start
from hocket.model.event import Event, JobEnded, JobRefused, NodeLost, OwnerSet
from hocket.model.job import Job, Owner, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Slice
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find
from hocket.reports.simulation import _stuck
from hocket.testing.builders import cluster, submission, submitted, workload
from hocket.testing.harness import Harness, simulated
from hocket.testing.invariants import broken_invariants

# -- max_jobs counts jobs ----------------------------------------------------------------------------------------


def graph(name: str, *tasks: str) -> Job:
    return Job(name, "ana", tasks=TaskGraph(tuple(Task(t, Demand(1)) for t in tasks)))


def seat(node: str, gpu: int, *tenants: str) -> Partition:
    """`seat("n0", 1, "g/a")`: task a of job g on GPU 1 of node n0."""
    seated = tuple(Tenant(job, (1,), task) for job, _, task in (t.partition("/") for t in tenants))
    return Partition(f"{node}/{gpu}", (Slice(node, (gpu,)),), seated, Sharing.STACKED)


def adopted(state: State, plan: Plan) -> None:
    found, capacity = examine(state.snapshot(), plan)
    assert found == []
    adopt(state, plan, capacity)
    assert broken_invariants(state.snapshot()) == []


def two_jobs_at_most() -> State:
    """Job g of three tasks has a place, the third task on a node of its own."""
    state = State(empty_snapshot(cluster("2x4")), lambda _view, _now_s: ())
    fold(state, [OwnerSet(0.0, Owner("ana", max_jobs=2))])
    for job in (graph("g", "a", "b", "c"), graph("h", "a"), graph("i", "a")):
        fold(state, [submitted(job)])
    put = (seat("n0", 0, "g/a"), seat("n0", 1, "g/b"), seat("n1", 0, "g/c"))
    adopted(state, Plan(put, reasons={"*": "first"}))
    return state


def test_a_job_counts_once_however_many_of_its_tasks_have_a_place():
    state = two_jobs_at_most()
    assert state.usage.live["ana"].jobs == 1
    assert state.usage.live["ana"].gpus == 3
    adopted(state, Plan((seat("n0", 2, "g/b"),), ("n0/1",), reasons={"*": "a task moves"}))
    assert state.usage.live["ana"].jobs == 1
    adopted(state, Plan((seat("n0", 0, "g/a", "h/a"),), reasons={"*": "beside another"}))
    assert state.usage.live["ana"].jobs == 2
    fold(state, [NodeLost(1.0, "n1")])
    assert state.usage.live["ana"].jobs == 2, "g goes on with two tasks"
    assert State(state.snapshot(), state.order).tasks_placed == {"g": 2, "h": 1}, "as a controller begins anew"
    adopted(state, Plan(drop=("n0/0", "n0/2"), reasons={"*": "all go"}))
    assert state.usage.live["ana"].jobs == 0
    assert state.tasks_placed == {}


def test_a_plan_may_give_a_job_another_task_but_not_its_owner_another_job():
    state = two_jobs_at_most()
    both = Plan((seat("n0", 0, "g/a", "h/a"), seat("n0", 3, "i/a")), reasons={"*": "so"})
    assert violations(state.snapshot(), both) == ["owner 'ana' has a quota of 2 jobs at once, the plan gives it 3"]
    instead = Plan(both.put, ("n0/1", "n1/0"), reasons={"*": "so"})
    assert violations(state.snapshot(), instead) == ["owner 'ana' has a quota of 2 jobs at once, the plan gives it 3"]
    adopted(state, Plan((seat("n0", 0, "h/a"), seat("n0", 3, "i/a")), ("n0/1", "n1/0"), reasons={"*": "g goes"}))
    assert state.usage.live["ana"].jobs == 2


@pytest.mark.parametrize("name", ["mlf_h", "mlfs_c", "gandiva", "graphene"])
def test_a_job_of_three_tasks_runs_where_its_owner_may_have_one_job(name: str):
    jobs = [submission(graph(name, "a", "b", "c"), reference_size=3) for name in ("g", "h")]
    ran = simulated(find(name).bound({}), workload(*jobs, owners=[Owner("ana", max_jobs=1)]), cluster("2x4"))
    assert ran.left == ()
    assert ran.refused == 0
    first, second = sorted(at_s for at_s, _verdict in ran.ended.values())
    assert second >= first + 100, "one after the other"


# -- a job that waits for a quota has that reason ----------------------------------------------------------------

USED = "waits: owner 'ana' has a quota of 2 GPUs, and others of its jobs use it"


def ana(name: str, gpus: int = 1) -> Job:
    return Job(name, "ana", sizes=(gpus,))


def asked(name: str, *events: Event) -> Harness:
    """A cluster of eight GPUs, of which ana may have two; each event is a cycle."""
    harness = Harness.of(find(name).bound({}), cluster("1x8"))
    for event in (OwnerSet(0.0, Owner("ana", max_gpus=2)), *events):
        harness.tell(event)
        harness.settle()
    return harness


def reasons(harness: Harness) -> dict[str, str]:
    snapshot = harness.snapshot
    return {view.id: reason for view in snapshot.jobs.values() if (reason := snapshot.short_of_quota(view))}


# -- an owner's jobs make way for each other within its quota ----------------------------------------------------

MORE = {"edf": {"deadline_s": 50.0}, "borg_fair": {"priority": 1}}  # that lets a job go before others of its owner


def held_up_behind(name: str, others: int, has: int = 2, needs: int = 1, quota: int = 2) -> Harness:
    """Eight GPUs: `has` of ana's for a long time, `others` of ben's; then ana has a job that is to go first."""
    harness = Harness.of(find(name).bound({}), cluster("1x8"))
    started = [submitted(Job(f"long{n}", "ana", sizes=(1,)), 0.0, 90_000) for n in range(has)]
    bens = [submitted(Job(f"ben{n}", "ben", sizes=(1,)), 0.0, 100) for n in range(others)]
    harness.tell(OwnerSet(0.0, Owner("ana", max_gpus=quota)), *started, *bens)
    harness.settle()
    harness.tell(submitted(Job("first", "ana", sizes=(needs,), **MORE.get(name, {})), 10_000.0, 10))
    harness.settle()
    return harness


def placed_of_ana(harness: Harness) -> set[str]:
    return {view.id for view in harness.snapshot.jobs.values() if view.job.owner == "ana" and view.partitions}


@pytest.mark.parametrize("others", [0, 6])  # GPUs are free, or not
@pytest.mark.parametrize("name", ["las", "tiresias", "srtf", "edf", "round_robin", "borg_fair"])
def test_a_job_that_is_to_go_first_takes_the_place_of_its_owners_own(name: str, others: int):
    harness = held_up_behind(name, others)
    assert harness.did(Start)[-1] == "first"
    assert harness.did(Pause)[-1] == "long1", "with round_robin the turn of long0 is over too, but it is the next"
    assert placed_of_ana(harness) == {"first", "long0"}
    assert reasons(harness) == {"long1": USED}
    harness.tell(JobEnded(10_010.0, "first", "finished"))
    harness.settle()
    assert harness.did(Resume)[-1] == "long1"
    assert placed_of_ana(harness) == {"long0", "long1"}


@pytest.mark.parametrize("name", ["las", "srtf", "edf", "round_robin", "borg_fair"])
def test_as_many_of_its_owners_own_make_way_as_it_takes(name: str):
    harness = held_up_behind(name, others=3, has=4, needs=3, quota=5)
    assert harness.did(Start)[-1] == "first"
    assert len(placed_of_ana(harness)) == 3, "one of the quota's five was left"


@pytest.mark.parametrize("name", ["fifo", "backfill", "fair", "drf"])
def test_a_job_that_ranks_before_none_of_its_owners_waits_for_the_quota(name: str):
    harness = held_up_behind(name, others=0)
    assert harness.did(Pause) == []
    assert "first" in reasons(harness)


def test_no_job_leaves_for_one_that_would_not_fit_then_either():
    harness = Harness.of(find("edf").bound({}), cluster("2x2"))
    early = [submitted(Job(f"early{n}", "ben", sizes=(1,), deadline_s=1.0), 0.0, 100) for n in range(2)]
    late = [submitted(Job(f"late{n}", "ana", sizes=(1,)), 0.0, 100) for n in range(2)]
    harness.tell(OwnerSet(0.0, Owner("ana", max_gpus=3)), *early, *late)
    harness.settle()
    harness.tell(submitted(Job("three", "ana", sizes=(3,), deadline_s=9.0), 1.0, 10))
    harness.settle()
    assert harness.did(Pause) == [], "two GPUs are all that ana's own could leave it"


@pytest.mark.parametrize("name", ["fifo", "las", "fair", "harmony"])
def test_a_job_held_up_by_a_quota_has_that_reason_until_it_has_room(name: str):
    harness = asked(name, submitted(ana("a", 2)), submitted(ana("b", 2), 1.0), submitted(ana("c"), 2.0))
    assert reasons(harness) == {"b": USED, "c": USED}
    harness.tell(JobEnded(3.0, "a", "finished"))
    harness.settle()
    assert reasons(harness) == {"c": USED}


def test_a_task_graph_is_told_of_its_tasks_and_of_other_jobs():
    harness = asked("gandiva", submitted(graph("g", "a", "b")), submitted(graph("h", "a"), 1.0))
    assert reasons(harness) == {"h": USED}
    harness.tell(OwnerSet(2.0, Owner("ana", max_jobs=1)))
    assert reasons(harness) == {"h": "waits: owner 'ana' has a quota of 1 jobs at once, and others of its jobs use it"}
    harness.tell(OwnerSet(3.0, Owner("ana", weight=2.0)))
    assert reasons(harness) == {}


# -- a job that its owner's quota can never have room for --------------------------------------------------------


def refusals(*events: Event) -> dict[str, str]:
    harness = asked("fifo")
    harness.tell(*events)
    return {e.job: e.reason for c in harness.journal.cycles for e in c.events if isinstance(e, JobRefused)}


def test_a_job_larger_than_its_owners_quota_is_refused():
    found = refusals(submitted(ana("a", 4)), submitted(ana("b", 2)), submitted(Job("c", "bo", sizes=(4,))))
    assert found == {
        "a": "job 'a': sizes must fit its owner's quota; its smallest needs more than owner 'ana' may have, 2 GPUs"
    }
    like_another = refusals(submitted(Job("c", "bo", sizes=(4,))), submitted(ana("a", 4)))
    assert like_another == found


def test_a_quota_that_comes_with_the_job_counts():
    found = refusals(OwnerSet(1.0, Owner("ana", max_cores=1.0)), submitted(Job("a", "ana", demand=Demand(1, 2.0)), 1.0))
    assert found["a"].endswith("its smallest needs more than owner 'ana' may have, 1 cores")


def test_tasks_that_need_more_than_a_quota_together_are_refused():
    found = refusals(submitted(graph("g", "a", "b", "c")), submitted(graph("h", "a", "b")))
    assert found == {"g": "job 'g': tasks must fit its owner's quota; all need more than owner 'ana' may have, 2 GPUs"}


def test_a_quota_that_is_set_later_refuses_no_job():
    harness = Harness.of(find("fifo").bound({}), cluster("1x2"))
    harness.tell(submitted(Job("all", sizes=(2,))), submitted(ana("a", 2)))
    harness.settle()
    harness.tell(OwnerSet(1.0, Owner("ana", max_gpus=1)), JobEnded(1.0, "all", "finished"))
    assert reasons(harness) == {"a": "waits: owner 'ana' has a quota of 1 GPUs, and the job alone needs more"}


def test_the_list_of_unfinished_jobs_says_that_a_quota_has_no_room():
    jobs = workload(submission(ana("a", 2)), submission(ana("b")), owners=[Owner("ana", max_gpus=2)])
    simulation = simulate(jobs, cluster("1x8"), find("las").bound({}), until_s=50.0)
    assert f"'b' is waiting: {USED}" in _stuck(simulation)
