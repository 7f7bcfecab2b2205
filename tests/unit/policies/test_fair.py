"""fair and drf: the owner with the least for its weight comes first."""

from hocket.model import Demand, Job, Node, Owner
from hocket.model.action import Pause, Resize
from hocket.model.event import JobEnded, OwnerSet
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def after(policy: str, *events, nodes=None, **knobs) -> Harness:
    harness = Harness.of(find(policy).bound(knobs), nodes or cluster("1x8"))
    for event in events:
        harness.tell(event)
        harness.settle()
    return harness


def gpus(harness: Harness) -> dict[str, int]:
    found: dict[str, int] = {}
    for view in harness.snapshot.jobs.values():
        found[view.job.owner] = found.get(view.job.owner, 0) + view.gpus
    return found


def many(owner: str, count: int, at_s: float = 0.0, **more) -> list:
    return [submitted(job(f"{owner}{i}", owner=owner, **more), at_s) for i in range(count)]


def test_fair_shares_by_weight():
    harness = Harness.of(find("fair").bound(), cluster("1x8"))
    harness.tell(OwnerSet(0, Owner("ana", 3.0)), *many("ana", 9), *many("bo", 9))
    harness.settle()
    assert gpus(harness) == {"ana": 6, "bo": 2}


def test_fair_gives_what_one_cannot_use_to_others():
    harness = Harness.of(find("fair").bound(), cluster("1x8"))
    harness.tell(*many("ana", 1), *many("bo", 9), *many("cy", 9))
    harness.settle()
    assert gpus(harness) == {"ana": 1, "bo": 4, "cy": 3} or gpus(harness) == {"ana": 1, "bo": 3, "cy": 4}


def test_fair_takes_back_from_the_owner_with_more_once_the_quantum_is_over():
    harness = after("fair", *many("ana", 9), *many("bo", 9, 100.0))
    assert gpus(harness) == {"ana": 8, "bo": 0}
    assert harness.controller.next_timer_s() == 600
    harness.tell(at_s=600)
    harness.settle()
    assert gpus(harness) == {"ana": 4, "bo": 4}


def test_fair_does_not_pause_what_would_leave_its_owner_with_less():
    events = [submitted(job("a", 8, owner="ana")), submitted(job("b", 8, owner="bo"), 100)]
    harness = after("fair", *events)
    harness.tell(at_s=5000)
    assert not any(isinstance(a, Pause) for a in harness.log)


def test_fair_without_preemption_pauses_no_job():
    harness = after("fair", *many("ana", 9), *many("bo", 9, 100.0), preempt=False)
    harness.tell(at_s=5000)
    harness.settle()
    assert gpus(harness) == {"ana": 8, "bo": 0}


def test_fair_shrinks_an_elastic_job_for_a_newcomer_and_lets_it_grow_again():
    elastic = job("e", 1, 2, 4, 8, owner="ana")
    harness = after("fair", submitted(elastic))
    assert gpus(harness) == {"ana": 8}
    harness.tell(submitted(job("n", 4, owner="bo"), 50))
    harness.settle()
    assert gpus(harness) == {"ana": 4, "bo": 4}
    assert [type(a) for a in harness.log if a.job == "e"][1:] == [Resize]
    harness.tell(JobEnded(100, "n"))
    harness.settle()
    assert gpus(harness) == {"ana": 4}  # not before its quantum is over
    harness.tell(at_s=650)
    harness.settle()
    assert gpus(harness) == {"ana": 8}


def test_fair_shares_by_job_weight_inside_an_owner():
    harness = Harness.of(find("fair").bound(), cluster("1x8"))
    harness.tell(submitted(job("heavy", *range(1, 9), weight=3.0)), submitted(job("light", *range(1, 9))))
    harness.settle()
    assert {v.job.id: v.size for v in harness.snapshot.jobs.values()} == {"heavy": 6, "light": 2}


def test_drf_equalises_dominant_shares():
    """The example of the paper: 9 cores and 18 GB; A's tasks need 1 core and 4 GB, B's 3 cores and 1 GB."""
    nodes = [Node("n", cores=9.0, mem_mib=18.0)]
    harness = Harness.of(find("drf").bound(), nodes)
    a = [submitted(Job(f"a{i}", "a", demand=Demand(0, 1.0, 4.0))) for i in range(9)]
    b = [submitted(Job(f"b{i}", "b", demand=Demand(0, 3.0, 1.0))) for i in range(9)]
    harness.tell(*a, *b)
    harness.settle()
    running = [v.job.owner for v in harness.snapshot.jobs.values() if v.size]
    assert (running.count("a"), running.count("b")) == (3, 2)


def test_drf_counts_weights_and_leaves_running_jobs_alone():
    harness = Harness.of(find("drf").bound(), cluster("1x8"))
    harness.tell(OwnerSet(0, Owner("ana", 3.0)), *many("ana", 9), *many("bo", 9))
    harness.settle()
    assert gpus(harness) == {"ana": 6, "bo": 2}
    harness.tell(*many("cy", 3, 10.0), at_s=99999)
    harness.settle()
    assert gpus(harness) == {"ana": 6, "bo": 2, "cy": 0}


def test_drf_lets_elastic_jobs_grow_a_size_at_a_time_owner_with_least_first():
    sizes = range(1, 9)
    harness = Harness.of(find("drf").bound(), cluster("1x8"))
    harness.tell(submitted(job("a", *sizes, owner="ana")), submitted(job("b", *sizes, owner="bo")))
    harness.settle()
    assert gpus(harness) == {"ana": 4, "bo": 4}


def test_drf_lets_the_first_of_one_owners_jobs_grow_first_and_counts_weights():
    harness = Harness.of(find("drf").bound(), cluster("1x8"))
    ana = [submitted(job(f"a{i}", 1, 2, 3, 4, owner="ana")) for i in range(2)]
    harness.tell(OwnerSet(0, Owner("ana", 3.0)), *ana, submitted(job("b", 1, 2, 4, owner="bo")))
    harness.settle()
    assert {v.job.id: v.size for v in harness.snapshot.jobs.values()} == {"a0": 4, "a1": 2, "b": 2}


def test_drf_may_preempt_after_the_quantum():
    harness = after("drf", *many("ana", 9), *many("bo", 9, 100.0), preempt=True)
    harness.tell(at_s=600)
    harness.settle()
    assert gpus(harness) == {"ana": 4, "bo": 4}
