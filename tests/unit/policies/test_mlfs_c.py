"""Load control: which jobs end early, why, and that no job does if its user did not allow it."""

from contextlib import nullcontext
from math import nan

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hocket.model.action import End
from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, JobAsked, JobRequest, OwnerSet
from hocket.model.job import Job, Owner, Stop, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan, Verdict
from hocket.model.resources import Demand, Slice
from hocket.policies import PolicyError, UnknownPolicy, find
from hocket.policies.kit.load_watch import LoadWatch, load
from hocket.policies.mlfs_c import LoadControl, somebody_waits, verdict, with_leaps
from hocket.reports.account import account
from hocket.testing import laws
from hocket.testing import strategies as some
from hocket.testing.builders import cluster, job, submission, submitted, workload
from hocket.testing.harness import Harness
from hocket.workloads.learning_curves import by_epoch, saturating

TARGET = parse("acc >= 0.91 within 80 epochs")


def fast(epoch):
    """A curve that comes to 0.8, and is as good as there after 30 epochs."""
    return 0.8 - 0.7 * 2 ** (-epoch / 4)


def harness(inner="fifo", nodes="1x2", **knobs) -> Harness:
    return Harness.of(find("mlfs_c").bound({"inner": inner, **knobs}), cluster(nodes))


def trained(harness, epochs, curve=fast, target=TARGET, **more):
    """A job alone on a GPU that reports so many epochs."""
    harness.tell(submitted(job("a", target=target, **more), harness.now_s))
    harness.settle()
    for epoch in range(1, epochs + 1):
        if "a" in harness.snapshot.jobs and not harness.snapshot.jobs["a"].verdict:
            harness.tell(EpochEnded(harness.now_s + 60, "a", epoch, {"acc": curve(epoch)}))
    return harness


def watched(snapshot) -> LoadWatch:
    watch = LoadWatch()
    watch.follow(snapshot)
    return watch


def ended(harness) -> list[str]:
    return [f"{a.job} {a.verdict}" for a in harness.log if isinstance(a, End)]


def test_a_job_whose_goal_is_out_of_reach_ends_with_how_sure_that_is():
    run = trained(harness(), 79, stop=Stop.OPTSTOP)
    assert ended(run) == ["a hopeless"]
    view = run.snapshot.jobs["a"]
    assert view.epoch < 79
    assert view.reason.startswith("stopped: 9")
    assert "% sure that epoch 80 stays below 0.91" in view.reason


def test_nothing_ends_a_job_whose_user_chose_fixed():
    assert ended(trained(harness(), 79)) == []


def test_the_same_job_goes_on_where_its_goal_is_within_reach():
    assert ended(trained(harness(), 79, target=parse("acc >= 0.8 within 80 epochs"), stop=Stop.OPTSTOP)) == []


def test_the_surer_it_must_be_the_later_it_ends():
    early, late = (trained(harness(confidence=c), 79, stop=Stop.OPTSTOP) for c in (0.8, 0.99))
    assert early.snapshot.jobs["a"].epoch < late.snapshot.jobs["a"].epoch


def test_the_less_a_metric_leaps_the_earlier_it_is_sure():
    early, late = (trained(harness(leaps=x), 79, stop=Stop.OPTSTOP) for x in (0.0, 0.2))
    assert early.snapshot.jobs["a"].epoch < late.snapshot.jobs["a"].epoch


def test_a_leap_may_come_until_the_last_epoch_and_ever_less_likely():
    chances = [with_leaps(0.01, epoch, 80, 0.2) for epoch in (10, 40, 60, 79, 80)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.3
    assert chances[-1] == pytest.approx(0.01)


def test_a_falling_metric_is_out_of_reach_if_it_stays_above():
    run = trained(harness(), 79, lambda e: 1.0 - fast(e), parse("acc <= 0.05 within 80 epochs"), stop=Stop.OPTSTOP)
    assert "stays above 0.05" in run.snapshot.jobs["a"].reason


def test_a_job_that_has_its_goal_ends_once_nothing_is_left_to_gain():
    run = trained(harness(), 79, target=parse("acc >= 0.7 within 80 epochs"), stop=Stop.OPTSTOP)
    assert ended(run) == ["a early-stopped"]
    view = run.snapshot.jobs["a"]
    assert fast(view.epoch) >= 0.7
    assert "sure that acc gains less than" in view.reason


def test_a_job_of_which_no_more_is_required_ends_at_its_goal():
    run = trained(harness(), 79, target=parse("acc >= 0.7 within 80 epochs"), stop=Stop.REQUIRED)
    assert ended(run) == ["a attained"]
    view = run.snapshot.jobs["a"]
    assert fast(view.epoch - 1) < 0.7 <= fast(view.epoch)
    assert "no more than acc >= 0.7" in view.reason


def test_a_job_without_a_last_epoch_ends_only_at_its_goal():
    assert ended(trained(harness(), 79, target=parse("acc >= 0.91"), stop=Stop.REQUIRED)) == []
    assert ended(trained(harness(), 79, target=parse("acc >= 0.7"), stop=Stop.REQUIRED)) == ["a attained"]


def test_a_user_who_lets_the_choice_be_lowered_keeps_it_while_no_job_waits():
    knobs = {"target": parse("acc >= 0.7 within 80 epochs"), "may_lower": Stop.REQUIRED}
    run = trained(harness(), 40, **knobs)
    assert ended(run) == []
    run.tell(submitted(job("big", 2), run.now_s))  # it waits
    assert ended(run) == ["a attained"]
    assert run.snapshot.jobs["a"].reason.startswith("stopped in times of overload: ")


def test_a_full_cluster_is_overloaded_without_a_queue():
    knobs = {"target": parse("acc >= 0.7 within 80 epochs"), "may_lower": Stop.REQUIRED}
    assert ended(trained(harness(nodes="1x1"), 40, **knobs)) == ["a attained"]
    assert ended(trained(harness(nodes="1x1", overload=1.5), 40, **knobs)) == []


def test_the_load_of_a_node_is_the_root_mean_square_of_what_it_has():
    run = Harness.of(find("fifo").bound(), cluster("1x2", cores=8.0))
    run.tell(submitted(job("a", cores=8.0)))
    there = run.snapshot
    assert load(there.nodes["n0"].node, there.capacity["n0"]) == pytest.approx(((0.5**2 + 1.0) / 2) ** 0.5)


def test_the_load_is_worked_out_anew_after_a_plan_that_swaps_jobs():
    run = Harness.of(find("mlfs_c").bound({"inner": "las"}), cluster("1x2", cores=8.0))
    target = parse("acc >= 0.7 within 80 epochs")
    run.tell(submitted(job("a", target=target, may_lower=Stop.REQUIRED)), submitted(job("heavy", cores=8.0)))
    run.settle()
    run.tell(EpochEnded(3.0, "a", 1, {"acc": 0.1}))
    run.tell(EpochEnded(3701.0, "a", 2, {"acc": 0.2}))
    run.tell(submitted(job("light"), 3702.0))  # It takes the heavy one's GPU: as many run, on as many GPUs.
    run.settle()
    run.tell(JobAsked(3703.0, "heavy", JobRequest.STOP))
    run.settle()
    assert list(run.snapshot.jobs) == ["a", "light"]
    assert watched(run.snapshot).mean_load(run.snapshot.capacity) < 0.9
    run.tell(EpochEnded(3710.0, "a", 3, {"acc": 0.9}))
    assert ended(run) == ["heavy stopped"]


# -- which jobs wait under a plan ---------------------------------------------------------------------------


def parts(name, count=2):
    return Job(name, tasks=TaskGraph(tuple(Task(f"t{n}", Demand(1, gpu_share=0.4)) for n in range(count))))


def on(gpu, *tenants):
    """A GPU of node n0 and the tasks that share it, as "job/task"."""
    sharing = tuple(Tenant(j, (1,), t) for j, _slash, t in (name.partition("/") for name in tenants))
    return Partition(f"n0/{gpu}", (Slice("n0", (gpu,)),), sharing, Sharing.STACKED)


def waits(jobs, before, plan) -> bool:
    """Does a job wait under the plan, if these jobs have these partitions?"""
    told = {"*": "so"} | {j.id: "so" for j in jobs}
    plans = [Plan(put=before, reasons=told)]
    run = Harness(lambda _s: plans.pop(0) if plans else Plan(reasons={}), cluster("1x2"))
    run.tell(*map(submitted, jobs))
    run.settle()
    return somebody_waits(run.snapshot, plan, watched(run.snapshot).lacking)


def test_a_job_that_waits_for_its_owners_quota_makes_no_overload():
    run = Harness.of(find("fifo").bound(), cluster("1x8"))
    run.tell(
        OwnerSet(0.0, Owner("full", max_gpus=1)), submitted(job("a", owner="full")), submitted(job("b", owner="full"))
    )
    run.settle()
    assert [entry[-1] for entry in run.snapshot.waiting] == ["b"]
    assert not somebody_waits(run.snapshot, Plan(), set())
    run.tell(submitted(job("c", 9, owner="other"), run.now_s), submitted(job("d", 8, owner="other"), run.now_s))
    run.settle()
    assert somebody_waits(run.snapshot, Plan(), set())


def test_a_task_that_a_plan_turns_out_waits():
    jobs, before = [parts("a"), parts("b", 1)], (on(0, "a/t0", "b/t0"), on(1, "a/t1"))
    assert not waits(jobs, before, Plan())
    assert waits(jobs, before, Plan(put=(on(0, "a/t0"),)))
    assert waits(jobs, before, Plan(put=(on(0, "b/t0"),)))
    assert waits(jobs, before, Plan(drop=("n0/1",)))
    assert not waits(jobs, before, Plan(put=(on(0, "a/t0"), on(1, "a/t1", "b/t0"))))
    assert not waits(jobs, before, Plan(put=(on(0, "a/t0", "a/t1", "b/t0"),), drop=("n0/1",)))


def test_a_task_waits_though_others_of_its_job_get_a_neighbour():
    jobs, before = [parts("a"), parts("b", 1)], (on(0, "a/t0"),)
    assert waits(jobs, before, Plan(put=(on(0, "a/t0", "b/t0"),)))
    assert not waits(jobs, before, Plan(put=(on(0, "a/t0", "b/t0"), on(1, "a/t1"))))


def test_a_newcomer_waits_as_long_as_one_of_its_tasks_does():
    assert waits([parts("a")], (), Plan(put=(on(0, "a/t1"),)))
    assert waits([parts("a")], (), Plan(put=(on(0, "a/t1"), on(1, "a/t1#2"))))
    assert not waits([parts("a")], (), Plan(put=(on(0, "a/t1"), on(1, "a/t0#2"))))


def test_a_whole_job_that_loses_its_share_waits():
    jobs, before = [job("a"), job("b")], (on(0, "a", "b"),)
    assert waits(jobs, before, Plan(put=(on(0, "a"),)))
    assert waits(jobs, before, Plan(drop=("n0/0",)))
    assert not waits(jobs, before, Plan(put=(on(0, "a"), on(1, "b"))))


def test_a_job_that_a_plan_ends_does_not_wait():
    assert not waits([job("a")], (), Plan(ends={"a": Verdict.STOPPED}))
    assert not waits([job("a")], (on(0, "a"),), Plan(ends={"a": Verdict.STOPPED}))


@pytest.mark.parametrize("value", [nan, float("inf"), 0.5])
def test_a_metric_that_is_no_number_or_never_moves_attains_nothing(value):
    run = trained(harness(), 79, lambda _e: value, stop=Stop.REQUIRED)
    assert ended(run) == []  # One that never moved may still begin to.


def test_a_rising_loss_is_hopeless():
    run = trained(harness(), 79, lambda e: 1 + e / 20, parse("acc <= 0.2 within 80 epochs"), stop=Stop.OPTSTOP)
    assert ended(run) == ["a hopeless"]


def test_a_job_that_is_being_ended_is_left_alone():
    run = trained(harness(), 79, stop=Stop.OPTSTOP)
    assert len(ended(run)) == 1
    view = run.snapshot.jobs["a"]
    assert verdict(view, run.now_s, True, LoadControl()) is not None  # … though nothing has changed.


def test_a_layer_takes_order_and_shifts_from_what_it_is_put_around():
    bound, inner = (
        find("mlfs_c").bound({"inner": "las", "inner_params": {"promote": 2}}),
        find("las").bound({"promote": 2}),
    )
    view = Harness.of(inner, cluster("1x1"))
    view.tell(submitted(job("a")))
    view.settle()
    a = view.snapshot.jobs["a"]
    assert bound.order(a, 50.0) == inner.order(a, 50.0)
    assert bound.shifts(a, 50.0) == inner.shifts(a, 50.0) == 3600
    assert bound.needs["learns"]  # which las alone has not
    assert not inner.needs["learns"]


def test_a_layer_around_nothing_known_is_refused():
    with pytest.raises(UnknownPolicy, match="did you mean 'las'"):
        find("mlfs_c").bound({"inner": "lass"})
    with pytest.raises(PolicyError, match="policy 'las'"):
        find("mlfs_c").bound({"inner": "las", "inner_params": {"promotee": 2}})


def test_layers_can_be_put_around_layers():
    bound = find("mlfs_c").bound({"inner": "mlfs_c", "inner_params": {"inner": "fifo"}})
    assert ended(trained(Harness.of(bound, cluster("1x2")), 79, stop=Stop.OPTSTOP)) == ["a hopeless"]


# -- over many runs -----------------------------------------------------------------------------------------


def reports(seed, count=40, **more):
    """Jobs with targets, of which a third is out of reach, more than the cluster has room for."""
    from random import Random

    dice = Random(seed)
    found = []
    for n in range(count):
        final = dice.uniform(0.7, 0.95)
        target = replace(
            TARGET, target=round(final * dice.choice((0.9, 0.97, 1.3)), 3), deadline=parse("for 20 epochs").limit
        )
        what = job(
            f"j{n}", dice.choice((1, 1, 2)), target=target, deadline_s=dice.uniform(1, 6) * 3600,
            stop=dice.choice(list(Stop)), may_lower=dice.choice(list(Stop)), **more,
        )  # fmt: skip
        truth = {"epochs": 20, "metric": "acc", "quality": saturating(20, 0.1, final, dice.uniform(1, 4))}
        found.append(submission(what, dice.uniform(0, 20_000), dice.uniform(1000, 9000), **truth))
    return workload(*found)


def met(bound, work, nodes, seed):
    """Jobs that had what their users want by their deadlines, and those that were stopped before."""
    from hocket.executors.simulated import simulate

    ran = simulate(work, nodes, bound, seed=seed)
    found = account(ran.journal.header, ran.journal)
    jobs = {s.job.id: s.job for s in work.submissions}
    goals = {r.job.id for r in found.jobs if r.goal_met}
    in_time = {r.job.id for r in found.jobs if r.goal_met and r.deadline_met}
    return goals, in_time, {r.job.id: r.verdict for r in found.jobs}, jobs


def test_over_ten_seeds_no_fewer_goals_are_met_and_no_job_ends_that_must_not():
    with_it = without = 0
    nodes = cluster("2x4")
    for seed in range(10):
        work = reports(seed, 25)
        goals, in_time, verdicts, jobs = met(find("mlfs_c").bound({"inner": "las"}), work, nodes, seed)
        all_goals, were_in_time, _verdicts, _jobs = met(find("las").bound(), work, nodes, seed)
        with_it, without = with_it + len(in_time), without + len(were_in_time)
        for job_id, found in verdicts.items():
            if found in (Verdict.EARLY_STOPPED, Verdict.HOPELESS, Verdict.ATTAINED):
                assert jobs[job_id].may_stop
            if not jobs[job_id].may_stop:
                assert found == Verdict.FINISHED
        assert goals == all_goals  # None of those stopped would have reached its goal.
    assert with_it >= without
    assert with_it > 0


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_laws_hold_whatever_users_allow(data):
    bound = find("mlfs_c").bound({"inner": data.draw(st.sampled_from(["las", "fair", "edf"])), "confidence": 0.6})
    nodes = data.draw(some.nodes())
    steps = data.draw(some.histories(nodes))
    stops = st.sampled_from(list(Stop))
    for i, step in enumerate(steps):
        if step.what == "submit":
            what, beliefs, costs = step.value
            goal = replace(TARGET, target=data.draw(st.sampled_from([0.4, 0.9])))
            allowed = {"target": goal, "stop": data.draw(stops), "may_lower": data.draw(stops)}
            steps[i] = replace(step, value=(replace(what, **allowed), beliefs, costs))
    run = some.play(Harness.of(bound, nodes), steps, nodes)
    for snapshot, _plan in run.asked[-8:]:
        laws.hold(bound, snapshot)


@pytest.mark.long
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1000), inner=st.sampled_from(["fifo", "las", "srtf", "fair"]))
def test_being_asked_more_often_changes_nothing(seed, inner):
    laws.hold_in_a_run(find("mlfs_c").bound({"inner": inner}), reports(seed, 7), cluster("1x3"))


def test_a_law_finds_a_policy_that_ends_jobs_it_must_not():
    run = trained(harness(), 20)
    plan = find("fifo").bound().decide(run.snapshot)
    for wrong in Verdict:
        with pytest.raises(laws.Broken, match="job 'a' ends as"):
            laws.ends_are_allowed(run.snapshot, replace(plan, ends={"a": wrong}, reasons={"a": "so"}))


@pytest.mark.parametrize(("stop", "right"), [(Stop.FIXED, False), (Stop.OPTSTOP, False), (Stop.REQUIRED, True)])
def test_a_law_lets_a_job_end_at_its_target_only_if_no_more_is_required(stop, right):
    run = trained(Harness.of(find("fifo").bound(), cluster("1x2")), 19, lambda _epoch: 0.95, stop=stop)
    plan = Plan(ends={"a": Verdict.ATTAINED}, reasons={"a": "so"})
    with nullcontext() if right else pytest.raises(laws.Broken, match="did not allow"):
        laws.ends_are_allowed(run.snapshot, plan)


def test_a_diverged_metric_after_a_good_one_is_not_attained():
    values = by_epoch([0.5, 0.95, nan])
    run = trained(harness(), 3, lambda e: values.at(e).mean if e < 3 else nan, stop=Stop.OPTSTOP)
    assert ended(run) == []
