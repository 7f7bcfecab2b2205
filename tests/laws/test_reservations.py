"""Under every policy a reserved node serves its owners, whatever other jobs wait, and those never get it."""

import pytest
from msgspec.structs import replace

from hocket.model.event import JobEnded, NodeReserved, NodeUnreserved
from hocket.model.job import Kind, Task, TaskGraph
from hocket.model.plan import Plan
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Demand, Node
from hocket.policies import find, policies
from hocket.testing import laws
from hocket.testing.builders import job, submitted
from hocket.testing.harness import Harness

NODES = [Node(f"n{i}", 4, cores=8.0, mem_mib=8000.0, net_mbps=1000.0) for i in range(2)]
LONG_S = 50_000.0


def nodes_of(harness, job_id):
    partitions = [harness.snapshot.partitions[p] for p in harness.snapshot.jobs[job_id].partitions]
    return {
        part.node
        for partition in partitions
        for tenant in partition.tenants
        if tenant.job == job_id
        for part, n in zip(partition.slices, tenant.replicas, strict=True)
        if n
    }


def go_on(harness, until_s, most=60):
    """Answer what is pending, and ask at the moments that the policy wants, up to a time."""
    for _ in range(most):
        harness.answer()
        at_s = harness.controller.next_timer_s()
        if at_s is None or at_s > until_s:
            break
        harness.tell(at_s=at_s)
    harness.tell(at_s=until_s)
    harness.answer()


CASES = [(name, {}, kind, 1e6) for name in policies() for kind in (Kind.TRAINING, Kind.PARAMETER_SERVER, Kind.MODEL)]
CASES += [(name, {}, Kind.TRAINING, None) for name in policies()]
CASES += [("mlf_h", {"round_s": 0, "patience_s": 50}, Kind.TRAINING, 1e6)]


@pytest.mark.parametrize(("name", "knobs", "kind", "run_s"), CASES, ids=[f"{n}-{k}-{s}" for n, _, k, s in CASES])
def test_a_reserved_node_serves_its_owners_and_no_others(name, knobs, kind, run_s):
    harness = Harness.of(find(name).bound(knobs), NODES)
    demand = Demand(1, 1.0, 1000.0)
    his = [f"bo{i}" for i in range(10)]

    def new(job_id, owner, *sizes):
        sizes = (1,) if kind is Kind.MODEL else sizes
        wanted = replace(job(job_id, *sizes, owner=owner, kind=kind), demand=demand)
        return submitted(wanted, harness.now_s, run_s)

    harness.tell(NodeReserved(0.0, NodeReservation("r", "n1", ("ana",), 0.0)))
    harness.tell(new("first", "ana", 1))
    for i, job_id in enumerate(his[:-1]):
        harness.tell(new(job_id, "bo", 1, *([2] if i % 2 else [])))
    go_on(harness, LONG_S)
    harness.tell(new("hers", "ana", 1), new(his[-1], "bo", 1))
    go_on(harness, 2 * LONG_S)
    assert nodes_of(harness, "first")
    assert nodes_of(harness, "hers"), "it waits for jobs that cannot have its node"
    for snapshot, plan in harness.asked:
        laws.reservations_are_kept(snapshot, plan)
    there = set().union(*(nodes_of(harness, job_id) for job_id in his))
    assert there == {"n0"}


@pytest.mark.parametrize("name", policies())
def test_jobs_on_a_node_that_is_reserved_run_on_and_get_no_more_of_it(name):
    harness = Harness.of(find(name).bound(), NODES[:1])
    harness.tell(
        submitted(job("stays", 1, 2, 4, owner="bo"), 0.0, 1e6), submitted(job("ends", 2, owner="cy"), 0.0, 1e6)
    )
    go_on(harness, 100.0)
    harness.tell(NodeReserved(100.0, NodeReservation("r", "n0", ("ana",), 100.0)))
    go_on(harness, 5000.0)
    running = [job_id for job_id, view in harness.snapshot.jobs.items() if view.size]
    had = harness.snapshot.partitions_of(Plan())
    assert running
    for job_id in running[1:]:
        harness.tell(JobEnded(5000.0, job_id))
    go_on(harness, LONG_S)
    kept = [p for p in harness.snapshot.partitions_of(Plan()) if p.tenants[0].job == running[0]]
    assert kept == [p for p in had if p.tenants[0].job == running[0]]
    for snapshot, plan in harness.asked:
        laws.reservations_are_kept(snapshot, plan)


@pytest.mark.parametrize("kind", [Kind.TRAINING, Kind.PARAMETER_SERVER, Kind.MODEL], ids=str)
@pytest.mark.parametrize("name", policies())
def test_jobs_that_wait_start_when_a_reservation_ends_or_is_removed(name, kind):
    harness = Harness.of(find(name).bound(), NODES)
    for n, (node, until_s) in enumerate((("n0", None), ("n1", 1000.0))):
        harness.tell(NodeReserved(float(n), NodeReservation(f"r{n}", node, ("ana",), float(n), until_s)))
    for i in range(3):
        wanted = replace(job(f"j{i}", owner="bo", kind=kind), demand=Demand(1, 1.0, 1000.0))
        harness.tell(submitted(wanted, 10.0 + i, 1e6), submitted(replace(wanted, id=f"{i}", sizes=(3,)), 10.0 + i, 1e6))
        harness.answer()
    assert not any(nodes_of(harness, job_id) for job_id in harness.snapshot.jobs)
    go_on(harness, 2000.0)
    there = set().union(*(nodes_of(harness, job_id) for job_id in harness.snapshot.jobs))
    assert there == {"n1"}
    harness.tell(NodeUnreserved(2000.0, "r0"))
    go_on(harness, 4000.0)
    assert set().union(*(nodes_of(harness, job_id) for job_id in harness.snapshot.jobs)) == {"n0", "n1"}


def test_dorm_moves_no_job_off_a_node_because_it_is_reserved():
    harness = Harness.of(find("dorm").bound(), NODES)
    harness.tell(submitted(job("stays", 4, owner="bo")))
    harness.answer()
    (node,) = nodes_of(harness, "stays")
    harness.tell(NodeReserved(1.0, NodeReservation("r", node, ("ana",), 1.0)))
    harness.tell(submitted(job("new", 1, 2, owner="bo"), 2.0))
    harness.answer()
    assert (nodes_of(harness, "stays"), len(nodes_of(harness, "new") - {node})) == ({node}, 1)


@pytest.mark.parametrize("name", ["gandiva", "graphene", "mlf_h"])
def test_tasks_are_not_placed_on_nodes_that_are_reserved_for_others(name):
    harness = Harness.of(find(name).bound(), NODES)
    graph = TaskGraph(tuple(Task(f"t{i}", Demand(1, gpu_share=0.8)) for i in range(3)))
    harness.tell(NodeReserved(0.0, NodeReservation("r", "n0", ("ana",), 0.0)))
    harness.tell(*(submitted(job(f"j{i}", owner="bo", tasks=graph), 1.0) for i in range(3)), at_s=1.0)
    go_on(harness, 5000.0)
    assert set().union(*(nodes_of(harness, f"j{i}") for i in range(3))) == {"n1"}
    harness.tell(submitted(job("hers", owner="ana", tasks=graph), 5000.0))
    harness.tell(NodeUnreserved(5001.0, "r"))
    go_on(harness, 10_000.0)
    assert set().union(*(nodes_of(harness, job_id) for job_id in harness.snapshot.jobs)) == {"n0", "n1"}
