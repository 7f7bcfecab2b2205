"""borg_fair: priorities, turns and equal shares."""

from hocket.model.action import Pause, Start
from hocket.model.event import JobEnded
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def after(*events, nodes="1x2", **knobs) -> Harness:
    harness = Harness.of(find("borg_fair").bound(knobs), cluster(nodes))
    for event in events:
        harness.tell(event)
        harness.settle()
    return harness


def test_owners_take_turns_whichever_came_first():
    many = [submitted(job(f"ana{n}", owner="ana"), n) for n in range(4)]
    harness = after(*many, submitted(job("bo", owner="bo"), 9), JobEnded(20, "ana0"))
    assert harness.did(Start) == ["ana0", "ana1", "bo"]


def test_a_higher_priority_goes_first_and_takes_the_place_of_the_latest_of_the_lowest():
    harness = after(
        submitted(job("low", priority=0)),
        submitted(job("lower", priority=-1), 1),
        submitted(job("high", priority=5), 2),
    )
    assert harness.did(Pause) == ["lower"]
    assert harness.did(Start) == ["low", "lower", "high"]


def test_within_a_priority_no_job_is_paused():
    assert after(submitted(job("a", 2)), submitted(job("b", 2, weight=9.0), 1)).did(Pause) == []


def test_without_preemption_a_higher_priority_waits():
    harness = after(submitted(job("low", 2)), submitted(job("high", priority=5), 2), preempt=False)
    assert harness.did(Start) == ["low"]


def test_an_elastic_job_gets_no_more_than_an_equal_share():
    harness = after(submitted(job("a", 1, 2, 4, 8)), submitted(job("b", 1, 2, 4, 8), 1), nodes="1x8")
    sizes = {j: harness.snapshot.jobs[j].size for j in "ab"}
    assert sizes == {"a": 8, "b": 0}  # a came alone, and is never resized
    together = Harness.of(find("borg_fair").bound(), cluster("1x8"))
    together.tell(submitted(job("a", 1, 2, 4, 8)), submitted(job("b", 1, 2, 4, 8)))
    together.settle()
    assert {j: together.snapshot.jobs[j].size for j in "ab"} == {"a": 4, "b": 4}


def test_a_share_is_weighted_and_never_below_the_smallest_size():
    harness = Harness.of(find("borg_fair").bound(), cluster("1x8"))
    harness.tell(submitted(job("a", 1, 2, 4, weight=0.5)), submitted(job("b", 3, 6, weight=0.1)))
    harness.settle()
    assert {j: harness.snapshot.jobs[j].size for j in "ab"} == {"a": 4, "b": 3}


def test_a_weight_counts_among_the_others_weights():
    harness = Harness.of(find("borg_fair").bound(), cluster("1x8"))
    harness.tell(submitted(job("a", 1, 2, 4, 8, weight=2.0)), submitted(job("b", 1, 2, 4, 8, weight=2.0)))
    harness.settle()
    assert {j: harness.snapshot.jobs[j].size for j in "ab"} == {"a": 4, "b": 4}
