"""EASY backfilling: later jobs start early, and never delay the first in line."""

from random import Random

import pytest
from msgspec.structs import replace

from hocket.executors.simulated import simulate
from hocket.model.action import Start
from hocket.model.curve import Beliefs, Estimate
from hocket.model.event import JobEnded, JobSubmitted
from hocket.model.job import Owner
from hocket.model.plan import Plan
from hocket.model.resources import Node
from hocket.policies import find
from hocket.policies.kit import waiting_by_run_time
from hocket.policies.kit.decision_cache import clear
from hocket.testing.builders import cluster, job, submission, submitted, workload
from hocket.testing.harness import Harness, simulated


def started(harness: Harness) -> list[str]:
    return [a.job for a in harness.log if isinstance(a, Start)]


def line(*events, nodes="1x4", **knobs) -> Harness:
    harness = Harness.of(find("backfill").bound(knobs), cluster(nodes) if isinstance(nodes, str) else nodes)
    for event in events:
        harness.tell(event)
        harness.settle()
    return harness


def test_a_short_job_slips_in_before_the_first_in_line():
    harness = line(submitted(job("a", 3), 0, 100), submitted(job("b", 4), 1, 50), submitted(job("c"), 2, 90))
    assert started(harness) == ["a", "c"]
    assert "before 'b' can start" in harness.snapshot.jobs["c"].reason


def test_a_long_job_does_not():
    harness = line(submitted(job("a", 3), 0, 100), submitted(job("b", 4), 1, 50), submitted(job("c"), 2, 200))
    assert started(harness) == ["a"]
    assert "'b' is first in line" in harness.asked[-1][1].reasons["*"]


def test_a_long_job_may_run_beside_the_reservation():
    harness = line(submitted(job("a", 3), 0, 100), submitted(job("b", 3), 1, 50), submitted(job("c"), 2, 1e6))
    assert started(harness) == ["a", "c"]
    assert "not in the way of 'b'" in harness.snapshot.jobs["c"].reason


def test_the_reservation_is_a_number_of_gpus_not_those_that_are_free_now():
    # GPUs 0 and 1 are free when 'b' comes, and 2 and 3 when it can start: of the first it needs one, whichever.
    harness = line(submitted(job("x", 2), 0, 10), submitted(job("a", 2), 0, 100))
    harness.tell(JobEnded(10.0, "x"))
    harness.settle()
    for event in (submitted(job("b", 3), 11, 50), submitted(job("c"), 12, 1e6)):
        harness.tell(event)
        harness.settle()
    assert started(harness) == ["x", "a", "c"]
    assert "not in the way of 'b'" in harness.snapshot.jobs["c"].reason


def test_beside_the_reservation_counts_by_node():
    # b needs a whole node and will have n0, where 'a' ends first: what is free on n0 is not spare.
    a, x, b = job("a", 3), job("x", 3), job("b", 4, max_nodes=1)
    harness = line(
        submitted(a, 0, 100), submitted(x, 0, 500), submitted(b, 1, 50), submitted(job("c"), 2, 1e6), nodes="2x4"
    )
    assert started(harness) == ["a", "x", "c"]
    assert harness.snapshot.partitions["c"].slices[0].node == harness.snapshot.partitions["x"].slices[0].node


def test_a_job_without_a_belief_counts_as_endless():
    harness = line(
        submitted(job("a", 3)), submitted(job("b", 4), 1, 50), submitted(job("c"), 2), submitted(job("d"), 3, 9)
    )
    assert started(harness) == ["a", "d"]  # It is unknown when b can start: d will have ended by then, c may not.


def test_an_elastic_job_is_cut_to_what_does_not_delay():
    elastic = job("c", 1, 2)
    harness = line(submitted(job("a", 2), 0, 100), submitted(job("b", 3), 1, 50), submitted(elastic, 2, 1000))
    assert started(harness) == ["a", "c"]
    assert harness.snapshot.jobs["c"].size == 1


def test_a_job_that_outlives_its_belief_is_believed_to_need_as_long_again():
    harness = line(submitted(job("a", 3), 0, 100), submitted(job("b", 4), 1, 50))
    harness.tell(at_s=160)  # the review, a minute after its believed end
    harness.tell(submitted(job("c"), 170, 100))
    assert started(harness) == ["a", "c"]


def test_depth_bounds_how_far_it_looks():
    events = [submitted(job("a", 3), 0, 100), submitted(job("b", 4), 1, 50)]
    events += [submitted(job(f"long{i}"), 2, 1e6) for i in range(3)] + [submitted(job("short"), 3, 5)]
    assert started(line(*events)) == ["a", "short"]
    assert started(line(*events, depth=2)) == ["a"]


def test_with_true_beliefs_the_first_in_line_is_never_later_than_under_fifo():
    jobs = [submission(job(f"j{i}", 1 + i * 7 % 4), i * 10, 37 + i * 53 % 200) for i in range(40)]
    ends = {p: simulated(find(p).bound(), workload(*jobs), cluster("1x4")).ended for p in ("fifo", "backfill")}
    assert sum(t for t, _v in ends["backfill"].values()) < sum(t for t, _v in ends["fifo"].values())


KINDS = [Node("n0", 2, "v100"), Node("n1", 1, "k80")]
SLOW_ON_K80 = Beliefs(Estimate(900), kinds={"k80": 0.1})


def test_a_job_that_is_slow_where_it_would_be_does_not_delay_the_first_in_line():
    # 'head' can start when 'a' ends, at 1000 s. On the one GPU that is free 'c' takes not 900 s but 9000.
    events = submitted(job("a", 2, gpu_kinds=("v100",)), 0, 1000), submitted(job("head", 3), 1, 100)
    slow = line(*events, JobSubmitted(2, job("c"), SLOW_ON_K80), nodes=KINDS)
    assert started(slow) == ["a"]
    fast = line(*events, JobSubmitted(2, job("c"), replace(SLOW_ON_K80, kinds={})), nodes=KINDS)
    assert started(fast) == ["a", "c"]


def test_the_first_in_line_is_reserved_when_slow_jobs_end():
    # 'a' holds the k80 until 9000 s, so 'head' cannot start before, and 'c' is done by then.
    events = JobSubmitted(0, job("a", gpu_kinds=("k80",)), SLOW_ON_K80), submitted(job("head", 3), 1, 100)
    assert started(line(*events, submitted(job("c"), 2, 5000), nodes=KINDS)) == ["a", "c"]
    assert started(line(*events, submitted(job("c"), 2, 9500), nodes=KINDS)) == ["a"]


def test_replicas_on_several_nodes_count_as_slow_as_they_are():
    # Two replicas of 'c' fit on two nodes only. There they take not 90 s but 180, and 'head' can start at 100 s.
    a, b, head = job("a", 3), job("b", 3), job("head", 8)
    events = submitted(a, 0, 100), submitted(b, 0, 100), submitted(head, 1, 50)
    together = line(*events, JobSubmitted(2, job("c", 2), Beliefs(Estimate(90), 2)), nodes="2x4")
    assert started(together) == ["a", "b", "c"]
    apart = line(*events, JobSubmitted(2, job("c", 2), Beliefs(Estimate(90), 2, spread=0.5)), nodes="2x4")
    assert started(apart) == ["a", "b"]


@pytest.mark.parametrize("few", [0, 3, 1_000_000])
def test_short_jobs_are_found_whether_looked_for_one_by_one_or_not(monkeypatch: pytest.MonkeyPatch, few: int):
    """A long line with jobs of many sorts, so many that looking for the brief ones alone makes a difference."""
    dice = Random(7)
    sizes = [(1,), (1,), (2,), (1, 2), (4,)]
    jobs = [
        submission(
            job(f"j{i}", *dice.choice(sizes), owner=dice.choice(("ana", "bob"))), i * 5.0, dice.lognormvariate(5, 1.5)
        )
        for i in range(200)
    ]
    work = workload(*jobs, owners=[Owner("bob", max_gpus=6)])

    def plans() -> list[Plan | None]:
        return [cycle.plan for cycle in simulate(work, cluster("2x4"), find("backfill").bound(), noise=0.3).journal]

    monkeypatch.setattr(waiting_by_run_time, "_FEW", -1)  # None is ever looked for by what it needs.
    one_by_one = plans()
    assert sum("before" in reason for plan in one_by_one if plan for reason in plan.reasons.values()) > 20
    monkeypatch.setattr(waiting_by_run_time, "_FEW", few)
    assert plans() == one_by_one
    clear()
    assert plans() == one_by_one
