"""Gandiva: first come, affinity, and moving off GPUs that are overloaded."""

from msgspec.structs import replace

from hocket.control.check import violations
from hocket.model.action import Move, Pause, Start
from hocket.model.event import EpochEnded, OwnerSet, ProgressReported
from hocket.model.job import Owner, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node, Slice
from hocket.model.view import Use
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def run(*events, nodes="2x4", **knobs) -> Harness:
    harness = Harness.of(find("gandiva").bound(knobs), cluster(nodes) if isinstance(nodes, str) else nodes)
    for event in events:
        harness.tell(event)
        harness.settle()
    return harness


def node_of(harness, job_id) -> str:
    (pid,) = harness.snapshot.jobs[job_id].partitions
    return harness.snapshot.partitions[pid].slices[0].node


def tasks(*shares) -> TaskGraph:
    return TaskGraph(tuple(Task(f"t{k}", Demand(1, gpu_share=s)) for k, s in enumerate(shares)))


def gpus_of(harness, job_id) -> dict[str, str]:
    return {t.task: p.id for p in harness.snapshot.partitions.values() for t in p.tenants if t.job == job_id}


def test_the_first_job_starts_first_and_none_overtakes():
    harness = run(submitted(job("a", 6)), submitted(job("b", 4), 1), submitted(job("c", 1), 2))
    assert [a.job for a in harness.log if isinstance(a, Start)] == ["a"]
    assert "'b' came first" in harness.snapshot.jobs["c"].reason or "b" in str(harness.asked[-1][1].reasons)


def test_no_job_is_paused():
    harness = run(submitted(job("a", 8)), submitted(job("b", 1, priority=9), 1))
    assert not [a for a in harness.log if isinstance(a, Pause)]


def test_jobs_of_one_size_go_to_the_same_server():
    harness = run(
        submitted(job("a", 1)), submitted(job("b", 2), 1), submitted(job("c", 3), 2), submitted(job("d", 1), 3)
    )
    assert node_of(harness, "a") == node_of(harness, "d")
    crowded = run(
        submitted(job("x", 3)), submitted(job("y", 2), 1), submitted(job("z", 1), 2), submitted(job("w", 1), 3)
    )
    assert node_of(crowded, "w") != node_of(crowded, "z")  # There is no room beside its kin.


def test_a_job_of_several_tasks_goes_whole_to_one_server():
    # 'a' leaves one of the three GPUs of n0 free. There is kin, but n1 has room for both tasks of 'b'.
    nodes = [Node("n0", 3), Node("n1", 4)]
    a, b, c = (submitted(job(name, tasks=tasks(0.9, 0.9)), at_s) for at_s, name in enumerate("abc"))
    harness = run(a, b, c, nodes=nodes)
    assert {place[:2] for place in gpus_of(harness, "a").values()} == {"n0"}
    assert {place[:2] for place in gpus_of(harness, "b").values()} == {"n1"}
    assert {place[:2] for place in gpus_of(harness, "c").values()} == {"n1"}


def test_a_server_with_kin_that_has_room_for_all_tasks_comes_first():
    small, a, b = job("small", tasks=tasks(0.9)), job("a", tasks=tasks(0.5, 0.5)), job("b", tasks=tasks(0.4, 0.4))
    harness = run(submitted(small), submitted(a, 1), submitted(b, 2), nodes="2x2")
    # Both tasks of 'b' would fit on the GPU that n0 has left, too, which is used less.
    homes = [{place[:2] for place in gpus_of(harness, name).values()} for name in ("small", "a", "b")]
    assert homes == [{"n0"}, {"n1"}, {"n1"}]


def test_a_job_that_no_server_has_room_for_is_split():
    full, wide = job("full", 3), job("wide", tasks=tasks(0.9, 0.9))
    harness = run(submitted(full), submitted(job("other", 3), 1), submitted(wide, 2))
    assert {place[:2] for place in gpus_of(harness, "wide").values()} == {"n0", "n1"}


def test_an_owner_over_quota_holds_up_no_other():
    harness = run(
        OwnerSet(0.0, Owner("ana", max_gpus=1)),
        submitted(job("a", owner="ana")),
        submitted(job("b", owner="ana"), 1),
        submitted(job("c", owner="bo"), 2),
    )
    assert [a.job for a in harness.log if isinstance(a, Start)] == ["a", "c"]


def test_the_lightest_task_leaves_a_gpu_that_turns_out_to_be_overloaded():
    harness = run(
        submitted(job("a", tasks=tasks(0.5))), submitted(job("b", tasks=tasks(0.3)), 1), nodes="1x1", look_s=100
    )
    assert set(gpus_of(harness, "a").values()) == set(gpus_of(harness, "b").values()) == {"n0/0"}
    grown = Harness.of(find("gandiva").bound({"look_s": 100.0}), cluster("1x2"))
    for event in (
        submitted(job("a", tasks=tasks(0.5))),
        submitted(job("full", tasks=tasks(0.9)), 0.5),
        submitted(job("b", tasks=tasks(0.3)), 1),
    ):
        grown.tell(event)
        grown.settle()
    assert gpus_of(grown, "a") == gpus_of(grown, "b") == {"t0": "n0/0"}
    grown.tell(ProgressReported(50, "a", 1, {}, Use(gpus=0.8)))
    from hocket.model.event import JobEnded

    grown.tell(JobEnded(60, "full"))
    grown.tell(at_s=101)
    grown.settle()
    assert gpus_of(grown, "b") == {"t0": "n0/1"}
    assert "overloaded" in grown.snapshot.jobs["b"].reason
    assert gpus_of(grown, "a") == {"t0": "n0/0"}


def test_a_gpu_within_its_load_keeps_its_tasks():
    harness = run(
        submitted(job("a", tasks=tasks(0.5))), submitted(job("b", tasks=tasks(0.3)), 1), nodes="1x2", look_s=100
    )
    before = gpus_of(harness, "a"), gpus_of(harness, "b")
    harness.tell(EpochEnded(50, "a", 1, {}))
    harness.tell(at_s=300)
    assert (gpus_of(harness, "a"), gpus_of(harness, "b")) == before
    assert not [a for a in harness.log if isinstance(a, Move)]


def test_whole_jobs_that_another_policy_stacked_are_no_tasks():
    def stacked(snapshot):
        there = Partition("two/0", (Slice("n0", (0,)),), (Tenant("a", (1,)), Tenant("b", (1,))), Sharing.STACKED)
        return Plan((there,), reasons={"a": "shares", "b": "shares"}) if not snapshot.partitions else Plan()

    harness = Harness(stacked, cluster("1x2"))
    share = {"demand": Demand(1, gpu_share=0.5)}
    harness.tell(submitted(replace(job("a"), **share)), submitted(replace(job("b"), **share)))
    harness.settle()
    harness.tell(submitted(job("c"), 5.0))
    plan = find("gandiva").bound().decide(harness.snapshot)
    assert violations(harness.snapshot, plan) == []
    assert [p.slices for p in plan.put] == [(Slice("n0", (1,)),)]
