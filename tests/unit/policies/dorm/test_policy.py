"""The policy `dorm` in a controller: what it decides, when, and what it says."""

import pytest
from msgspec.structs import replace
from tests.unit.cli.typed import hocket, refused

from hocket.model.event import JobEnded, JobFailed, OwnerSet
from hocket.model.job import Owner
from hocket.policies import PolicyError, find
from hocket.policies.dorm.policy import LEFT_OUT
from hocket.policies.dorm.snapshot_to_problem import problem_of
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


def test_a_newcomer_for_whose_smallest_size_there_is_not_enough_waits_with_that_reason_until_something_ends():
    harness = running(cluster("2x4"), job("a", 4), job("b", 4), job("c", 6))
    plan = next(p for _s, p in reversed(harness.asked) if p.reasons)
    assert plan.reasons == {"*": LEFT_OUT}
    assert sizes(harness) == {"a": 4, "b": 4, "c": 0}
    harness.tell(JobEnded(10.0, "a"))
    harness.tell(JobEnded(11.0, "b"))
    harness.settle()
    assert sizes(harness) == {"c": 6}


def test_as_many_newcomers_enter_as_could_have_their_smallest_size_and_those_that_grew_make_way_for_them():
    harness = running(cluster("2x4"), job("a", *range(1, 9)), theta2=1.0, theta1=1.0)
    harness.tell(*(submitted(job(f"n{n:02d}", 2)) for n in range(30)), at_s=5.0)
    harness.settle()
    started = [name for name, size in sizes(harness).items() if size]
    assert started == ["a", "n00", "n01", "n02"]
    assert sizes(harness)["a"] == 2
    assert any(plan.reasons.get("*") == LEFT_OUT for _snapshot, plan in harness.asked)


def test_of_thousands_that_wait_only_those_enter_the_question_that_there_could_be_room_for():
    harness = running(cluster("2x4"), job("a", 4), job("b", 4))
    harness.tell(*(submitted(job(f"n{n}", 1 + n % 3)) for n in range(3000)), at_s=5.0)
    posed = problem_of(harness.snapshot, 0.1, 0.1)
    assert [view.id for view in posed.views] == ["a", "b"]
    assert posed.left_out


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


def test_a_solver_out_of_time_harms_no_job():
    jobs = [job(f"j{n}", *range(1, 5), cores=1 + n % 7) for n in range(12)]
    harness = running(cluster("8x4", cores=16.0), *jobs, solver_s=1e-9)
    assert all(size >= 1 for size in sizes(harness).values())


@pytest.mark.parametrize("knob", [{"theta1": 1.2}, {"theta2": -0.1}, {"theta1": "much"}])
def test_limits_outside_zero_and_one_are_refused(knob):
    with pytest.raises(PolicyError, match=f"policy 'dorm': .*{next(iter(knob))}"):
        find("dorm").bound(knob)


def simulation(tmp_path, fields):
    """The words of a command that simulates one job with these fields."""
    path = tmp_path / "work.toml"
    path.write_text(f'[[jobs]]\nid = "a"\nsubmit_s = 0\nrun_s = 60\n{fields}\n')
    return "simulate", str(path), "--policy", "dorm", "--cluster", "2x4"


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ("sizes = [4, 2]", "sizes must ascend, each size once, not [4, 2]"),
        ("sizes = [0, 1]", "sizes must be a list, each entry a whole number from 1 up, not [0, 1]"),
        ("weight = 0", "weight must be a finite number above 0, not 0"),
        ("gpus = -1", "gpus must be a whole number from 0 up, not -1"),
        ("cores = -1", "cores must be a finite number from 0 up, not -1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field_and_rule(tmp_path, fields, rule):
    assert refused(*simulation(tmp_path, fields)).endswith(f"job 'a': {rule}\n")


def test_a_job_that_asks_for_nothing_is_refused_with_the_rule(tmp_path):
    said = hocket(*simulation(tmp_path, "gpus = 0\ncores = 0")).output
    assert "job 'a': demand must be above 0 of a resource" in said


def test_a_job_none_of_whose_sizes_fits_is_refused_with_the_rule(tmp_path):
    said = hocket(*simulation(tmp_path, "sizes = [9, 10]")).output
    assert "job 'a': sizes must fit the cluster; its smallest needs 9 GPUs, the largest that fits is 8" in said
