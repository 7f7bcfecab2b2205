"""Reshape, and the policies it is compared with, in the situations of the paper."""

import pytest

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.executors.simulated import BeliefMode, SimulatedExecutor
from hocket.model import Beliefs, Curve, Estimate, Node, Point
from hocket.model.event import JobEnded, JobSubmitted
from hocket.model.snapshot import empty_snapshot
from hocket.model.view import Costs
from hocket.policies import PolicyError, find
from hocket.testing.builders import cluster, job, submission, workload
from hocket.testing.harness import Harness, simulated
from hocket.workloads.reshape import reshape_workload

SPEED = Curve((Point(1.0, 1.0), Point(2.0, 1.7), Point(4.0, 2.4)))  # of ResNet, by the paper's introduction
COSTS = Costs(prepare_s=83.0, start_s=17.0, checkpoint_s=5.0, stop_s=5.0)


def comes(name, at_s, run_s, *sizes, costs=COSTS, kinds=None, **more):
    """A job's submission, of which everything is known; `run_s` on one GPU."""
    known = Beliefs(Estimate(run_s), 1, SPEED, kinds or {})
    return JobSubmitted(at_s, job(name, *sizes, **more), known, costs)


def sizes(harness):
    return {v.id: v.size for v in harness.snapshot.jobs.values()}


def settle(harness):
    while harness.pending:
        harness.answer()


def kinds_of(actions):
    return [(type(a).__name__, a.job) for a in actions]


# -- reshape ------------------------------------------------------------------------------------------------


def test_the_case_study_a_newcomer_is_prepared_before_the_running_job_gives_up_its_gpus():
    harness = Harness.of(find("reshape").bound(), cluster("1x4"))
    harness.tell(comes("one", 0.0, 1700.0, 1, 2, 4, warm=True))
    settle(harness)
    assert sizes(harness) == {"one": 4}
    assert kinds_of(harness.tell(comes("two", 180.0, 750.0, 1, 2, warm=True))) == [("Prepare", "two")]
    assert kinds_of(harness.answer(at_s=263.0)) == [("Resize", "one")]
    assert kinds_of(harness.answer(at_s=290.0)) == [("Start", "two")]
    harness.answer(at_s=307.0)
    assert sizes(harness) == {"one": 2, "two": 2}
    assert kinds_of(harness.tell(JobEnded(700.0, "two"))) == [("Resize", "one")]
    harness.answer(at_s=727.0)
    assert sizes(harness) == {"one": 4}


def test_a_job_that_has_too_little_left_to_repay_a_restart_does_not_grow():
    harness = Harness.of(find("reshape").bound(), cluster("1x4"))
    harness.tell(comes("one", 0.0, 1000.0, 1, 2, 4), comes("two", 0.0, 1000.0, 2))
    settle(harness)
    assert sizes(harness) == {"one": 2, "two": 2}
    assert not harness.tell(JobEnded(580.0, "two"))  # It ends at 588 s; a restart takes 110 s.


def test_without_a_size_that_can_be_met_a_newcomer_waits_and_says_so():
    harness = Harness.of(find("reshape").bound(), cluster("1x4"))
    harness.tell(comes("one", 0.0, 1000.0, 4))
    settle(harness)
    harness.tell(comes("two", 10.0, 1000.0, 2))
    assert harness.asked[-1][1].reasons["*"].startswith("waits: no size of it can be met")


def test_growing_across_hosts_counts_a_whole_restart():
    nodes = [Node("a", 2), Node("b", 4)]
    harness = Harness.of(find("reshape").bound(), nodes)
    harness.tell(comes("fills", 0.0, 9000.0, 4), comes("one", 0.0, 1000.0, 2, 4, max_nodes=1, warm=True))
    settle(harness)
    # At home it would take 27 s to restart, elsewhere 110 s: with 150 s left of 588 that is not worth it.
    assert not harness.tell(JobEnded(438.0, "fills"))


def test_faster_gpus_are_preferred_and_progress_on_slow_ones_counts_less():
    nodes = [Node("slow", 4, "p100"), Node("fast", 4, "v100")]
    harness = Harness.of(find("reshape").bound(), nodes)
    kinds = {"v100": 1.0, "p100": 0.5}
    harness.tell(comes("one", 0.0, 2400.0, 4, kinds=kinds), comes("two", 0.0, 2400.0, 4, kinds=kinds))
    settle(harness)
    harness.tell(at_s=100.0)
    one, two = (harness.snapshot.jobs[name] for name in ("one", "two"))
    assert (one.tenancies[0].holding.slices[0].node, two.tenancies[0].holding.slices[0].node) == ("fast", "slow")
    assert one.done_at(100.0) == pytest.approx(240.0)
    assert two.done_at(100.0) == pytest.approx(120.0)


def test_time_spent_on_a_resize_is_no_progress():
    harness = Harness.of(find("reshape").bound(), cluster("1x4"))
    harness.tell(comes("one", 0.0, 5000.0, 2, 4, warm=True), comes("two", 0.0, 1000.0, 2))
    settle(harness)
    harness.tell(JobEnded(100.0, "two"))
    harness.answer(at_s=127.0)
    assert harness.snapshot.jobs["one"].done_at(127.0) == pytest.approx(100.0 * 1.7)


@pytest.mark.parametrize("early", [True, False], ids=["early", "by termination"])
@pytest.mark.parametrize("name", ["reshape", "optimus"])
def test_with_all_speeds_and_costs_known_the_work_done_is_known_at_every_time(name, early):
    made, bound = reshape_workload(1, early=early), find(name).bound()
    work_s = {s.job.id: s.truth.run_s for s in made.submissions}
    controller = Controller(
        empty_snapshot(made.nodes), bound.decide, bound.order, MemoryJournal(Header(name)), **bound.needs
    )
    executor = SimulatedExecutor(made, made.nodes, beliefs=BeliefMode("oracle"))
    resized = 0
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        for event in moment[1]:
            if isinstance(event, JobEnded):
                view = controller.snapshot.jobs[event.job]
                assert view.done_at(event.at_s) == pytest.approx(work_s[event.job])
                resized += view.starts > 1
        executor.apply(controller.cycle(*moment))
    assert resized > 5


def test_several_donors_are_asked_only_if_that_is_allowed():
    for donors, expected in ((1, {"one": 2, "two": 2, "new": 0}), (2, {"one": 1, "two": 1, "new": 2})):
        harness = Harness.of(find("reshape").bound({"donors": donors}), cluster("1x4"))
        harness.tell(comes("one", 0.0, 5000.0, 1, 2), comes("two", 0.0, 5000.0, 1, 2))
        settle(harness)
        harness.tell(comes("new", 10.0, 5000.0, 2))
        settle(harness)
        assert sizes(harness) == expected


def test_the_last_job_grows_for_the_makespan_and_the_one_that_gains_most_for_the_mean():
    for objective, grows in (("makespan", "last"), ("jct", "quick")):
        harness = Harness.of(find("reshape").bound({"objective": objective}), cluster("1x6"))
        harness.tell(comes("fills", 0.0, 100.0, 2))
        for name, run_s, faster in (("last", 10_000.0, 1.1), ("quick", 5000.0, 2.0)):
            known = Beliefs(Estimate(run_s), 2, Curve((Point(2.0, 1.0), Point(4.0, faster))))
            harness.tell(JobSubmitted(0.0, job(name, 2, 4), known, COSTS))
            settle(harness)
        assert sizes(harness) == {"fills": 2, "last": 2, "quick": 2}
        harness.tell(JobEnded(10.0, "fills"))
        settle(harness)
        assert sizes(harness) == {"last": 2, "quick": 2, grows: 4}


def test_a_start_says_what_its_size_is_best_for():
    for objective, said in (("makespan", "the last job ends soonest"), ("jct", "jobs end soonest on average")):
        harness = Harness.of(find("reshape").bound({"objective": objective}), cluster("1x2"))
        harness.tell(comes("one", 0.0, 100.0, 1, 2))
        assert harness.snapshot.jobs["one"].reason == f"starts: with this size {said}"


def test_hysteresis_keeps_a_job_from_growing_for_a_small_gain():
    for hysteresis, grows in ((0.0, True), (0.5, False)):
        harness = Harness.of(find("reshape").bound({"hysteresis": hysteresis}), cluster("1x4"))
        harness.tell(comes("one", 0.0, 5000.0, 2, 4, warm=True), comes("two", 0.0, 1000.0, 2))
        settle(harness)
        assert bool(harness.tell(JobEnded(10.0, "two"))) is grows


# -- the policies it is compared with -----------------------------------------------------------------------


def test_optimus_starts_small_grows_by_a_size_and_never_shrinks():
    harness = Harness.of(find("optimus").bound(), cluster("1x4"))
    harness.tell(comes("one", 0.0, 9000.0, 1, 2, 4))
    harness.answer()
    assert sizes(harness) == {"one": 1}
    harness.answer()
    assert sizes(harness) == {"one": 2}
    harness.answer()
    assert sizes(harness) == {"one": 4}
    assert not harness.tell(comes("two", 10.0, 9000.0, 1, 2))
    assert harness.asked[-1][1].reasons["*"].startswith("waits")


def test_optimus_counts_a_whole_restart_even_of_jobs_that_can_be_warmed_up():
    for left_s, grows in ((150.0, False), (600.0, True)):  # Two GPUs instead of one save 41 %; a restart takes 110 s.
        harness = Harness.of(find("optimus").bound(), cluster("1x2"))
        harness.tell(comes("one", 0.0, 1000.0, 1, 2, warm=True), comes("two", 0.0, 1000.0, 1))
        settle(harness)
        assert bool(harness.tell(JobEnded(1000.0 - left_s, "two"))) is grows


def test_k8s_default_draws_a_size_once_and_lets_others_overtake():
    drawn = set()
    for seed in range(12):
        harness = Harness.of(find("k8s_default").bound(), cluster("2x8"), seed=seed)
        harness.tell(comes("one", 0.0, 100.0, 1, 2, 4, 8))
        settle(harness)
        drawn.add(sizes(harness)["one"])
    assert len(drawn) > 2
    harness = Harness.of(find("k8s_default").bound(), cluster("1x4"))
    harness.tell(comes("one", 0.0, 100.0, 3))
    harness.tell(comes("large", 1.0, 100.0, 4), comes("small", 2.0, 100.0, 1))
    settle(harness)
    assert sizes(harness) == {"one": 3, "large": 0, "small": 1}


def test_k8s_default_keeps_the_size_it_drew_while_it_waits():
    jobs = [submission(job(f"j{i}", 1, 2, 4), at_s=i, run_s=50.0) for i in range(10)]
    first, again = (
        simulated(find("k8s_default").bound(), workload(*jobs), cluster("1x4"), eager=e) for e in (False, True)
    )
    assert first.ended == again.ended


def test_static_has_a_size_by_model_that_fits_the_job():
    bound = find("static").bound({"models": "lr=3,mf=8", "size": "largest"})
    harness = Harness.of(bound, cluster("2x8"))
    harness.tell(
        comes("a", 0.0, 100.0, 1, 2, 4, model="lr"),
        comes("b", 0.0, 100.0, 1, 2, model="mf"),
        comes("c", 0.0, 9.0, 1, 8),
    )
    settle(harness)
    assert sizes(harness) == {"a": 2, "b": 2, "c": 8}


@pytest.mark.parametrize("text", ["lr", "lr=0", "=3", "lr=x", "lr=-1"])
def test_static_refuses_sizes_that_are_none(text):
    with pytest.raises(PolicyError, match=f"models must be as MODEL=SIZE, with a size from 1 up, not '{text}'"):
        find("static").bound({"models": text})


@pytest.mark.parametrize(
    ("name", "value"), [("donors", 0), ("hysteresis", 1.0), ("hysteresis", -0.1), ("unknown_s", 0), ("objective", "x")]
)
def test_reshape_refuses_knobs_out_of_range(name, value):
    with pytest.raises(PolicyError, match=name):
        find("reshape").bound({name: value})
