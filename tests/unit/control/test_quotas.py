"""Owners' quotas: what counts against them, and that every policy keeps to them and says so."""

from __future__ import annotations

import pytest

from hocket.control.adopt import adopt
from hocket.control.check import examine, violations
from hocket.control.fold import fold
from hocket.control.state import State, empty
from hocket.model.event import NodeLost, OwnerSet
from hocket.model.job import Job, Owner, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Slice
from hocket.policies import find
from hocket.testing.builders import cluster, submission, submitted, workload
from hocket.testing.harness import simulated
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
    state = State(empty(cluster("2x4")), lambda _view, _now_s: ())
    fold(state, OwnerSet(0.0, Owner("ana", max_jobs=2)))
    for job in (graph("g", "a", "b", "c"), graph("h", "a"), graph("i", "a")):
        fold(state, submitted(job))
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
    fold(state, NodeLost(1.0, "n1"))
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
