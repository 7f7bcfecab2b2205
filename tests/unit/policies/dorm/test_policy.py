"""The policy `dorm` in a controller: what it decides, when, and what it says."""

import pytest
from msgspec.structs import replace

from hocket.model.event import JobEnded, JobFailed, OwnerSet
from hocket.model.job import Owner
from hocket.policies import PolicyError, find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def running(nodes, *jobs, **knobs):
    """A harness in which these jobs came one after another, and all that was decided is done."""
    harness = Harness.of(find("dorm").bound(knobs), nodes)
    for n, one in enumerate(jobs):
        harness.tell(submitted(one), at_s=float(n))
        harness.settle()
    return harness


def sizes(harness):
    return {view.id: view.size for view in harness.snapshot.jobs.values()}


def test_a_job_alone_gets_all_it_can_use():
    assert sizes(running(cluster("2x4"), job("a", *range(1, 7)))) == {"a": 6}


def test_a_newcomer_gets_its_least_at_the_cost_of_those_that_grew():
    harness = running(cluster("2x4"), job("a", *range(1, 9)), job("b", 2, 3))
    assert sizes(harness) == {"a": 5, "b": 3} or sizes(harness) == {"a": 6, "b": 2}


def test_what_an_ended_job_leaves_is_given_away():
    harness = running(cluster("2x4"), job("a", *range(1, 9)), job("b", 2, 3))
    harness.tell(JobEnded(10.0, "b"))
    harness.settle()
    assert sizes(harness) == {"a": 8}


def test_a_reason_says_what_changes_and_the_gap_to_the_bound():
    harness = running(cluster("2x4"), job("a", *range(1, 9)), job("b", 2, 3))
    reasons = harness.asked[-1][1].reasons or next(p.reasons for _s, p in reversed(harness.asked) if p.reasons)
    assert reasons["b"].startswith("starts at size")
    assert reasons["a"].startswith("shrinks from 8 to")
    assert "utilisation 1.000 of at most 1.000, gap 0.00%" in reasons["a"]


def test_if_there_is_no_solution_all_stay_and_it_says_which_limit_binds_until_something_ends():
    harness = running(cluster("2x4"), job("a", 4), job("b", 4), job("c", 6))
    plan = next(p for _s, p in reversed(harness.asked) if p.reasons)
    assert plan.reasons == {"*": "waits: the smallest sizes of all do not fit the cluster together"}
    assert sizes(harness) == {"a": 4, "b": 4, "c": 0}
    harness.tell(JobEnded(10.0, "a"))
    harness.tell(JobEnded(11.0, "b"))
    harness.settle()
    assert sizes(harness) == {"c": 6}


def test_without_a_solution_what_fits_beside_the_others_starts_at_its_smallest_size():
    harness = running(cluster("1x7"), job("a", 4), job("b", *range(2, 6)), theta1=0.0)
    assert sizes(harness) == {"a": 4, "b": 2}
    assert "the fairness limit (0, theta1=0) binds" in harness.snapshot.jobs["b"].reason


def test_of_those_that_run_no_more_change_than_theta2_allows():
    jobs = [job(f"j{n}", *range(1, 9)) for n in range(6)]
    harness = running(cluster("3x4"), *jobs, theta2=0.2)
    for snapshot, plan in harness.asked:
        changed = [p for p in plan.put if p.id in snapshot.partitions]
        assert len(changed) <= -(-len(snapshot.partitions) // 5)


def test_nothing_is_decided_again_while_nothing_has_changed():
    harness = running(cluster("2x4"), job("a", *range(1, 9)), job("b", 2, 3))
    again = find("dorm").bound().decide(harness.snapshot)
    assert not again.put
    assert not again.reasons
    anew = find("dorm").bound({"theta2": 1.0}).decide(replace(harness.snapshot, memo=None))
    assert anew.memo == again.memo


def test_a_job_that_broke_is_placed_again():
    harness = running(cluster("2x4"), job("a", 2), job("b", 2))
    harness.tell(JobFailed(10.0, "a", "it broke"))
    harness.settle()
    assert sizes(harness) == {"a": 2, "b": 2}


def test_an_owner_gets_no_more_than_its_quota():
    harness = Harness.of(find("dorm").bound(), cluster("2x4"))
    harness.tell(OwnerSet(0.0, Owner("ana", max_gpus=3)))
    harness.tell(submitted(job("a", *range(1, 9), owner="ana")), submitted(job("b", 1, owner="ana")))
    harness.tell(submitted(job("c", 2, owner="ana")), at_s=1.0)
    harness.settle()
    assert sizes(harness) == {"a": 2, "b": 1, "c": 0}


def test_a_solver_out_of_time_harms_nobody():
    jobs = [job(f"j{n}", *range(1, 5), cores=1 + n % 7) for n in range(12)]
    harness = running(cluster("8x4", cores=16.0), *jobs, solver_s=1e-9)
    assert all(size >= 1 for size in sizes(harness).values())


@pytest.mark.parametrize("knob", [{"theta1": 1.2}, {"theta2": -0.1}, {"theta1": "much"}])
def test_limits_outside_zero_and_one_are_refused(knob):
    with pytest.raises(PolicyError, match=f"policy 'dorm': .*{next(iter(knob))}"):
        find("dorm").bound(knob)
