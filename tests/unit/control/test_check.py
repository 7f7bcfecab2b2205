"""Every rule that a plan can break, in words."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.control.check import examine, violations
from hocket.control.commit import adopt, end_job
from hocket.control.fold import fold
from hocket.control.state import State
from hocket.model.event import JobSubmitted, OwnerSet
from hocket.model.job import Job, Owner, Task, TaskGraph
from hocket.model.partition import Boundary, Partition, Sharing, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Demand, Node, Slice
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import Tier

NODES = (
    Node("n", 4, "v100", 16_000.0, 8.0, 1000.0, 100.0),
    Node("m", 2, "p100", 8_000.0, 4.0, 500.0, 100.0),
    Node("lost", 2),
)
JOBS = (
    Job("a", "ana", sizes=(1, 2, 4)),
    Job("b", "bo"),
    Job("rich", sizes=(1, 2), demand=Demand(1, 2.0, 300.0, 20.0), max_nodes=1, gpu_kinds=("v100",)),
    Job("big", gpu_mem_mib=12_000.0),
    Job("half", demand=Demand(1, 3.0, 400.0, gpu_share=0.5)),
    Job("graph", tasks=TaskGraph((Task("t", Demand(1)), Task("u", Demand(1))))),
    Job("over"),
)


def alone(job: str, *slices: Slice, replicas: tuple[int, ...] = (1,), pid: str = "", **more: Any) -> Partition:
    return Partition(pid or job, slices, (Tenant(job, replicas, **more),))


def shared(pid: str, sharing: Sharing, part: Slice, *jobs: str, **more: Any) -> Partition:
    return Partition(pid, (part,), tuple(Tenant(j, (1,), **more) for j in jobs), sharing)


SO = {"*": "so"}


def planned(*put: Partition) -> Snapshot:
    """Partitions as planned, and nothing else."""
    state = State(empty_snapshot(NODES), lambda _view, _now_s: ())
    fold(state, [JobSubmitted(0.0, job) for job in JOBS])
    plan = Plan(put, reasons=SO)
    found, capacity = examine(state.snapshot(), plan)
    assert found == []
    adopt(state, plan, capacity)
    return state.snapshot()


@pytest.fixture
def snapshot() -> Snapshot:
    """Job a runs on GPUs 0 and 1 of n; job over is being ended; the node lost is lost."""
    from hocket.model.event import NodeLost

    state = State(empty_snapshot(NODES), lambda _view, _now_s: ())
    fold(state, [OwnerSet(0.0, Owner("ana", max_gpus=3, max_cores=10.0, max_mem_mib=900.0, max_jobs=1))])
    for job in JOBS:
        fold(state, [JobSubmitted(0.0, job)])
    fold(state, [NodeLost(0.0, "lost")])
    plan = Plan((alone("a", Slice("n", (0, 1)), replicas=(2,)),), reasons={"*": "first"})
    found, capacity = examine(state.snapshot(), plan)
    assert found == []
    adopt(state, plan, capacity)
    end_job(state, "over", "stopped", "its user said so")
    return state.snapshot()


GPU = Slice("n", (2,))
RICH = Slice("n", (2,), 2.0, 300.0, 20.0)
WORDS: dict[str, tuple[Plan, str]] = {
    "a partition that is not there": (Plan(drop=("z",)), "the plan drops partition 'z', which does not exist"),
    "dropped twice": (Plan(drop=("a", "a")), "the plan drops partition 'a' twice"),
    "put twice": (Plan((alone("b", GPU), alone("b", GPU))), "partition 'b' is in the plan twice"),
    "kept and dropped": (
        Plan((alone("a", Slice("n", (0,))),), ("a",)),
        "partition 'a' is both kept and dropped",
    ),
    "no tenant": (Plan((Partition("p", (GPU,), ()),)), "partition 'p' has no tenant"),
    "a node twice": (
        Plan((alone("a", Slice("m", (0,)), Slice("m", (1,)), replicas=(1, 1)),)),
        "partition 'a' names a node twice",
    ),
    "a tenant of two new partitions": (
        Plan((alone("b", GPU), alone("b", Slice("n", (3,)), pid="p"))),
        "tenant 'b' is in partitions 'b' and 'p'",
    ),
    "a tenant that has another already": (
        Plan((alone("a", GPU, pid="p"),)),
        "tenant 'a' is in partitions 'a' and 'p'",
    ),
    "two alone": (
        Plan((shared("p", Sharing.ALONE, Slice("n", (2, 3)), "b", "big"),)),
        "partition 'p' is for one tenant alone and has 'b', 'big'",
    ),
    "a stranger": (Plan((alone("z", GPU),)), "partition 'z' has tenant 'z', which is not live"),
    "one that is being ended": (
        Plan((alone("over", GPU),)),
        "partition 'over' has tenant 'over', which is not live",
    ),
    "one that the plan ends": (
        Plan((alone("b", GPU),), ends={"b": "hopeless"}),
        "partition 'b' has tenant 'b', which is not live",
    ),
    "replicas on other nodes": (
        Plan((alone("b", GPU, replicas=(1, 0)),)),
        "tenant 'b' counts replicas on 2 nodes, partition 'b' has 1",
    ),
    "a task that is none": (
        Plan((alone("graph", GPU, task="v"),)),
        "job 'graph' has no task 'v'",
    ),
    "a task without a replica": (
        Plan((alone("graph", GPU, replicas=(0,), task="t"),)),
        "tenant 'graph/t' has no replica in partition 'graph'",
    ),
    "a job of tasks in one piece": (
        Plan((alone("graph", GPU),)),
        "job 'graph' consists of tasks, but is whole in partition 'graph'",
    ),
    "a task beside a job in one piece": (
        Plan((Partition("p", (GPU,), (Tenant("b", (1,)), Tenant("graph", (1,), "t")), Sharing.STACKED),)),
        "partition 'p' has 'b', 'graph/t': whole jobs and tasks cannot share a partition",
    ),
    "a size it cannot run at": (
        Plan((alone("a", Slice("n", (0, 1, 2)), replicas=(3,)),)),
        "job 'a' runs at sizes 1, 2, 4, the plan gives it 3",
    ),
    "an unknown boundary": (
        Plan((alone("b", GPU, boundary=Boundary("dusk")),)),
        "tenant 'b' has boundary 'dusk', which is not one of now, step, epoch, after",
    ),
    "a length of nothing": (
        Plan((alone("b", GPU, boundary=Boundary("after")),)),
        "tenant 'b' has boundary 'after' 0 seconds and 0 batches, of which one must be above 0",
    ),
    "too many nodes": (
        Plan((alone("rich", RICH, Slice("m", (0,), 2.0, 300.0, 20.0), replicas=(1, 1)),)),
        "job 'rich' may span 1 nodes, the plan spreads it over 2",
    ),
    "fewer than no replicas": (
        Plan((alone("a", Slice("n", (0, 1)), Slice("m", (0,)), replicas=(2, -1)),)),
        "tenant 'a' has -1 replicas on node 'm'",
    ),
    "another kind of GPU": (
        Plan((alone("rich", Slice("m", (0,), 2.0, 300.0, 20.0)),)),
        "job 'rich' accepts GPUs of kind v100, node 'm' has 'p100'",
    ),
    "a small GPU": (
        Plan((alone("big", Slice("m", (0,))),)),
        "job 'big' needs 12000 MiB on each GPU, node 'm' has 8000",
    ),
    "too few GPUs": (
        Plan((alone("a", Slice("n", (0,)), replicas=(2,)),)),
        "tenant 'a' needs 2 GPUs on node 'n', partition 'a' has 1",
    ),
    "too few cores": (
        Plan((alone("rich", Slice("n", (2,), 1.0, 300.0, 20.0)),)),
        "tenant 'rich' needs 2 cores on node 'n', partition 'rich' has 1",
    ),
    "too little memory": (
        Plan((alone("rich", Slice("n", (2,), 2.0, 100.0, 20.0)),)),
        "tenant 'rich' needs 300 MiB of memory on node 'n', partition 'rich' has 100",
    ),
    "too little network": (
        Plan((alone("rich", Slice("n", (2,), 2.0, 300.0)),)),
        "tenant 'rich' needs 20 Mbps of network on node 'n', partition 'rich' has 0",
    ),
    "memory that two do not have together": (
        Plan((shared("p", Sharing.PACKED, Slice("n", (2,), 6.0, 500.0), "half", "rich"),)),
        "the tenants of partition 'p' need 700 MiB of memory on node 'n', it has 500",
    ),
    "more than twice a stacked GPU": (
        Plan((shared("p", Sharing.STACKED, Slice("n", (2,), 8.0, 900.0), "half", "b", "big"),)),
        "the tenants stacked on partition 'p' ask for 2.5 GPUs on node 'n', more than 2 times its 1",
    ),
    "more than twice the cores": (
        Plan((shared("p", Sharing.STACKED, Slice("n", (2,), 1.0, 900.0), "half", "b"),)),
        "the tenants stacked on partition 'p' ask for 3 cores on node 'n', more than 2 times its 1",
    ),
    "a GPU of another": (
        Plan((alone("b", Slice("n", (1,))),)),
        "partition 'b': node 'n' has no free GPU 1: another partition holds it",
    ),
    "a GPU that is not there": (
        Plan((alone("b", Slice("n", (4,))),)),
        "partition 'b': node 'n' has 4 GPUs, the plan names GPU 4",
    ),
    "a GPU twice": (
        Plan((alone("b", Slice("n", (2, 2))),)),
        "partition 'b': node 'n': the plan names a GPU twice in [2, 2]",
    ),
    "cores that are not there": (
        Plan((alone("b", Slice("n", (2,), 9.0)),)),
        "partition 'b': node 'n' has 8 free cores, the plan takes 9",
    ),
    "memory that is not there": (
        Plan((alone("b", Slice("n", (2,), mem_mib=1001.0)),)),
        "partition 'b': node 'n' has 1000 free MiB of memory, the plan takes 1001",
    ),
    "network that is not there": (
        Plan((alone("b", Slice("n", (2,), net_mbps=101.0)),)),
        "partition 'b': node 'n' has 100 free Mbps of network, the plan takes 101",
    ),
    "less than no cores": (
        Plan((alone("b", Slice("n", (2,), -1.0)),)),
        "partition 'b': node 'n' cannot give -1 cores, 0 MiB of memory and 0 Mbps of network",
    ),
    "no number of cores": (
        Plan((alone("b", Slice("n", (2,), float("nan"))),)),
        "partition 'b': node 'n' cannot give nan cores, 0 MiB of memory and 0 Mbps of network",
    ),
    "a node that is lost": (Plan((alone("b", Slice("lost", (0,))),)), "partition 'b': node 'lost' is lost"),
    "a node that is unknown": (
        Plan((alone("b", Slice("z", (0,))),)),
        "partition 'b': node 'z' is not in the cluster",
    ),
    "GPUs beyond a quota": (
        Plan((alone("a", Slice("n", (0, 1, 2, 3)), replicas=(4,)),)),
        "owner 'ana' has a quota of 3 GPUs, the plan gives it 4",
    ),
    "the end of a stranger": (Plan(ends={"z": "hopeless"}), "the plan ends job 'z', which is not live"),
    "an end without a reason": (Plan(ends={"b": "hopeless"}, reasons={"*": "so"}), "job 'b' ends without a reason"),
    "the state of a stranger": (
        Plan(tiers={"z": Tier.DISK}),
        "the plan keeps the state of job 'z', which is not live",
    ),
    "a checkpoint of a stranger": (
        Plan(checkpoints={"z": Tier.DISK}),
        "the plan checkpoints job 'z', which is not live",
    ),
    "a review that never comes": (
        Plan(reviews={"b": float("inf")}),
        "job 'b' has a review at inf s",
    ),
    "a moment that never comes": (Plan(wake=Wake(at_s=float("nan"))), "the policy shall be called at nan s"),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_broken_rule_is_said_in_words(name: str, snapshot: Snapshot) -> None:
    plan, words = WORDS[name]
    if not plan.ends and "*" not in plan.reasons:
        from msgspec.structs import replace

        plan = replace(plan, reasons={"*": "so"})
    assert words in violations(snapshot, plan)


@pytest.mark.parametrize(
    ("plan", "job"),
    [
        (Plan((alone("b", GPU),)), "b"),
        (Plan(drop=("a",)), "a"),
        (Plan((alone("a", Slice("n", (0,))),)), "a"),
        (Plan((alone("a", Slice("n", (0, 1)), replicas=(2,), boundary=Boundary("epoch")),)), "a"),
    ],
)
def test_every_change_of_a_job_needs_a_reason(plan: Plan, job: str, snapshot: Snapshot) -> None:
    assert violations(snapshot, plan) == [f"job '{job}' changes without a reason"]


def test_one_reason_may_stand_for_a_whole_queue(snapshot: Snapshot) -> None:
    assert violations(snapshot, Plan((alone("b", GPU),), reasons={"*": "so"})) == []


def test_what_is_given_up_may_be_taken_in_the_same_plan(snapshot: Snapshot) -> None:
    plan = Plan((alone("b", Slice("n", (0,))),), ("a",), reasons={"*": "so"})
    found, capacity = examine(snapshot, plan)
    assert found == []
    assert capacity.gpus == 5  # of the six that are there
    assert snapshot.capacity.gpus == 4, "the snapshot is as it was"


def test_a_quota_does_not_hold_against_what_an_owner_has(snapshot: Snapshot) -> None:
    from msgspec.structs import replace

    poor = replace(snapshot, owners=snapshot.owners.set("ana", Owner("ana", max_gpus=1)))
    moved = alone("a", Slice("n", (2, 3)), replicas=(2,))
    assert violations(poor, Plan((moved,), reasons={"*": "so"})) == []


@pytest.mark.parametrize("stay", [("b", "half"), ("b", "half", "big")])
def test_tenants_that_stay_as_they_are_cannot_share_in_another_way(stay: tuple[str, ...]) -> None:
    part = Slice("n", (2,), 6.0, 900.0)
    snapshot = planned(shared("p", Sharing.PACKED, part, "b", "half", "big"))
    in_turns = shared("p", Sharing.INTERLEAVED, part, *stay)
    assert violations(snapshot, Plan((in_turns,), reasons=SO)) == [
        "partition 'p' is packed and shall be interleaved, "
        "but no tenant joins it or changes in it, so its tenants would not be told"
    ]


def test_a_tenant_that_joins_or_changes_tells_how_a_partition_is_shared_from_now_on() -> None:
    part = Slice("n", (2,), 6.0, 900.0)
    snapshot = planned(shared("p", Sharing.PACKED, part, "b", "half"))
    joined = shared("p", Sharing.INTERLEAVED, part, "b", "half", "big")
    resized = shared("p", Sharing.INTERLEAVED, part, "b", "half", boundary=Boundary("epoch"))
    larger = shared("p", Sharing.INTERLEAVED, Slice("n", (2, 3), 6.0, 900.0), "b", "half")
    one_left = shared("p", Sharing.ALONE, part, "b")
    for new in (joined, resized, larger, one_left):
        assert violations(snapshot, Plan((new,), reasons=SO)) == []


def test_an_empty_plan_breaks_nothing(snapshot: Snapshot) -> None:
    assert examine(snapshot, Plan()) == ([], snapshot.capacity)


@pytest.mark.parametrize("sharing", [s for s in Sharing if s is not Sharing.ALONE])
def test_a_tenant_that_may_be_joined_must_have_its_memory_too(sharing: Sharing) -> None:
    state = State(empty_snapshot([Node("n", 1, mem_mib=1000.0)]), lambda _view, _now_s: ())
    fold(state, [JobSubmitted(0.0, Job("a", demand=Demand(1, mem_mib=999.0)))])
    world = state.snapshot()
    none = Partition("p", (Slice("n", (0,)),), (Tenant("a", (1,)),), sharing)
    enough = Partition("p", (Slice("n", (0,), mem_mib=999.0),), (Tenant("a", (1,)),), sharing)
    said = "the tenants of partition 'p' need 999 MiB of memory on node 'n', it has 0"
    assert violations(world, Plan((none,), reasons={"*": "so"})) == [said]
    assert violations(world, Plan((enough,), reasons={"*": "so"})) == []
