from hocket.control.check import violations
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import JobEnded, JobSubmitted
from hocket.model.job import Kind
from hocket.model.partition import Sharing
from hocket.model.resources import Node
from hocket.policies import find
from hocket.testing.builders import job
from hocket.testing.harness import Harness

MACHINES = [Node(f"m{i}", cores=8.0, mem_mib=32_000.0, net_mbps=1000.0) for i in range(8)]


def told(name, comp_machine_s, comm_s, at_s=0.0, least=1):
    beliefs = Beliefs(comp_s=Curve((Point(1.0, comp_machine_s),)), comm_s=Curve((Point(1.0, comm_s),)))
    what = job(name, *range(least, 9), gpus=0, cores=8.0, kind=Kind.PARAMETER_SERVER)
    return JobSubmitted(at_s, what, beliefs)


def sizes(h):
    return {v.job.id: sum(p.size_of(v.job.id) for p in map(h.snapshot.partitions.get, v.partitions))
            for v in h.snapshot.jobs.values()}  # fmt: skip


def test_free_machines_go_to_the_job_that_computes_most_with_them():
    h = Harness.of(find("isolated").bound(), MACHINES)
    h.tell(told("computes", 100.0, 1.0), told("talks", 10.0, 10.0))
    assert sizes(h)["computes"] > sizes(h)["talks"] >= 1
    assert sum(sizes(h).values()) == 8
    assert all(p.sharing is Sharing.ALONE for p in h.snapshot.partitions.values())


def test_a_newcomer_gets_machines_that_others_can_spare():
    h = Harness.of(find("isolated").bound(), MACHINES)
    h.tell(told("a", 100.0, 10.0), told("b", 100.0, 1.0))
    h.settle()
    h.tell(told("c", 100.0, 1.0, 5.0, least=2), at_s=5.0)
    assert sizes(h)["c"] == 2
    assert h.snapshot.jobs["b"].reason.startswith("shrinks: 'c'")  # a has one, and cannot spare it


def test_no_job_has_fewer_machines_than_the_least_or_its_largest_size():
    h = Harness.of(find("isolated").bound({"least": 3}), MACHINES)
    few = job("few", 1, 2, gpus=0, cores=8.0, kind=Kind.PARAMETER_SERVER)
    h.tell(JobSubmitted(0.0, few), told("a", 10.0, 10.0), told("b", 10.0, 10.0))
    h.settle()
    assert sizes(h) == {"few": 2, "a": 3, "b": 3}
    h.tell(told("c", 10.0, 10.0, 5.0), at_s=5.0)
    assert sizes(h) == {"few": 2, "a": 3, "b": 3, "c": 0}  # None shrinks below it either.


def test_a_job_waits_for_as_many_machines_as_the_least():
    h = Harness.of(find("isolated").bound({"least": 5}), MACHINES)
    h.tell(told("a", 10.0, 10.0), told("b", 10.0, 10.0))
    assert sizes(h) == {"a": 5, "b": 0}
    alone = Harness.of(find("isolated").bound({"least": 5}), MACHINES)
    alone.tell(told("a", 100.0, 1.0))
    alone.settle()
    alone.tell(told("b", 10.0, 10.0, 5.0), at_s=5.0)
    assert sizes(alone) == {"a": 8, "b": 0}  # Five and five are more than there are, so that none shrinks.


def test_a_job_is_not_restarted_for_a_few_machines():
    h = Harness.of(find("isolated").bound({"grow": 10}), MACHINES)
    h.tell(told("a", 100.0, 1.0), told("b", 100.0, 1.0))
    h.settle()
    before = sizes(h)["b"]
    h.tell(JobEnded(9.0, "a"))
    assert sizes(h) == {"b": before}


def test_naive_puts_jobs_together_by_lot():
    def pairs(seed):
        h = Harness.of(find("naive").bound({"machines": 4}), MACHINES, seed=seed)
        h.tell(*(told(f"j{i}", 10.0, 5.0) for i in range(6)))
        assert all(p.sharing is Sharing.STACKED and len(p.tenants) == 2 for p in h.snapshot.partitions.values())
        return {frozenset(t.job for t in p.tenants) for p in h.snapshot.partitions.values()}

    assert len({frozenset(pairs(seed)) for seed in range(12)}) > 3
    assert pairs(1) == pairs(1)


def test_jobs_that_another_policy_put_together_are_left_as_they_are():
    h = Harness.of(find("naive").bound({"machines": 4}), MACHINES, seed=1)
    h.tell(told("a", 10.0, 5.0), told("b", 10.0, 5.0))
    h.settle()
    (shared,) = h.snapshot.partitions.values()
    assert len(shared.tenants) == 2
    plan = find("isolated").bound().decide(h.snapshot)
    assert violations(h.snapshot, plan) == []
    assert not plan.put, "four machines are free, but jobs that share do not grow"
