"""Your own history under another policy: what a journal tells of its jobs, and how far that can be trusted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hocket.control.ports import Cycle, Header
from hocket.executors.simulated import Simulation, simulate
from hocket.model.criterion import parse
from hocket.model.curve import Beliefs, Curve, Point
from hocket.model.event import (
    JobEnded,
    JobSaved,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeReserved,
    NodeUndrained,
    OwnerSet,
    PhasesObserved,
    PolicySet,
)
from hocket.model.job import Kind, Owner, Preempt, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Demand, Node, Slice
from hocket.model.view import Costs
from hocket.policies.registry import find
from hocket.reports.account import Account, account
from hocket.reports.whatif import Rebuilt, band, names, rebuild, run_again
from hocket.reports.work_alone import Place
from hocket.testing.builders import cluster, job, submission, workload
from hocket.workloads import load
from hocket.workloads.truth import Fault, Workload


def recorded(
    work: Workload, nodes: list[Node], policy: str = "fifo", until_s: float | None = None, **knobs: object
) -> tuple[Simulation, Account, Rebuilt]:
    """A run, its account, and what is rebuilt of it."""
    run = simulate(work, nodes, find(policy).bound(knobs), until_s=until_s)
    accounted = account(run.journal.header, run.journal)
    return run, accounted, rebuild(accounted, run.journal)


def jcts(accounted: Account) -> dict[str, float | None]:
    return {r.job.id: r.jct_s for r in accounted.jobs}


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "round_robin", "fair"])
def test_rigid_jobs_without_switching_costs_come_out_as_recorded(policy: str) -> None:
    _run, then, rebuilt = recorded(load("poisson?jobs=120&gap=120&owners=3"), cluster("2x8"), policy)
    again = run_again(rebuilt, find(policy).bound(), 0)
    assert jcts(again.account) == pytest.approx(jcts(then), abs=1e-3)
    compared = band(then, again.account)
    assert compared.share == pytest.approx(0.0, abs=1e-9)
    assert compared.jobs_p95_share == pytest.approx(0.0, abs=1e-9)
    assert not again.extrapolated
    assert not rebuilt.unfinished


def test_another_policy_gives_what_it_would_have_given() -> None:
    work, nodes = load("poisson?jobs=120&gap=120"), cluster("2x8")
    _run, _then, rebuilt = recorded(work, nodes, "fifo")
    what_if = run_again(rebuilt, find("las").bound(), 0)
    _run, really, _rebuilt = recorded(work, nodes, "las")
    assert jcts(what_if.account) == pytest.approx(jcts(really), abs=1e-3)
    assert what_if.summary.jct_mean_s != pytest.approx(rebuilt_mean(rebuilt, "fifo"), rel=0.05)


def rebuilt_mean(rebuilt: Rebuilt, policy: str) -> float | None:
    return run_again(rebuilt, find(policy).bound(), 0).summary.jct_mean_s


def test_switching_costs_owners_and_beliefs_are_recorded_too() -> None:
    costs = Costs(prepare_s=20.0, start_s=10.0, checkpoint_s=5.0, stop_s=1.0)
    work = workload(
        *[submission(job(f"j{n}", 2, owner="ana"), at_s=n * 30.0, run_s=600.0, costs=costs) for n in range(6)],
        owners=[Owner("ana", max_gpus=4)],
    )
    _run, then, rebuilt = recorded(work, cluster("1x8"))
    assert {s.truth.costs for s in rebuilt.workload.submissions} == {costs}
    assert rebuilt.workload.owners == work.owners
    again = run_again(rebuilt, find("fifo").bound(), 0)
    found = band(then, again.account)
    assert found.share is not None
    assert found.share < 0.02


def test_quotas_that_were_set_on_the_way_are_set_again_when_they_were() -> None:
    wide, *narrow = [submission(job("wide", 2, owner="ana"))] + [
        submission(job(name, owner="ana"), at_s=60.0) for name in ("a", "b")
    ]
    changes = (OwnerSet(50.0, Owner("ana", max_gpus=1)), OwnerSet(150.0, Owner("ana")))
    work = replace(workload(wide, *narrow, owners=[Owner("ana", 2.0)]), changes=changes)
    _run, then, rebuilt = recorded(work, cluster("1x2"))
    assert jcts(then) == {"wide": 100.0, "a": 140.0, "b": 190.0}  # The last began when the quota was lifted.
    assert (rebuilt.workload.owners, rebuilt.workload.changes) == (work.owners, changes)
    assert jcts(run_again(rebuilt, find("fifo").bound(), 0).account) == jcts(then)


def test_nodes_that_were_drained_or_reserved_are_so_again() -> None:
    jobs = [submission(job(f"j{n}", owner="bo" if n % 2 else "ana"), at_s=10.0 * n) for n in range(8)]
    reserved = NodeReservation("r", "n1", ("ana",), 130.0, 260.0)
    changes = (NodeDrained(5.0, "n0"), NodeUndrained(120.0, "n0"), NodeReserved(125.0, reserved))
    plain = workload(*jobs)
    _run, then, rebuilt = recorded(replace(plain, changes=changes), cluster("2x1"))
    assert rebuilt.workload.changes == changes
    assert jcts(run_again(rebuilt, find("fifo").bound(), 0).account) == jcts(then)
    assert jcts(recorded(plain, cluster("2x1"))[1]) != jcts(then)


def test_the_end_of_a_reservation_does_not_prolong_a_run() -> None:
    work = replace(
        workload(submission(job("a"))), changes=(NodeReserved(0.0, NodeReservation("r", "n0", ("ana",), 0.0, 9e8)),)
    )
    run, then, _rebuilt = recorded(work, cluster("2x1"))
    assert (jcts(then), run.final.now_s) == ({"a": 100.0}, 100.0)


def test_a_policy_that_was_set_on_the_way_is_set_again_for_the_recorded_one_alone() -> None:
    jobs = [submission(job(f"j{n}", deadline_s=900.0 - 10 * n), at_s=float(n), run_s=100.0 - n) for n in range(8)]
    work = replace(workload(*jobs), changes=(PolicySet(150.0, "edf"),))
    _run, then, rebuilt = recorded(work, cluster("1x2"))
    assert rebuilt.workload.changes == work.changes
    assert rebuilt.ruled("fifo") == "fifo → edf"
    assert jcts(run_again(rebuilt, find("fifo").bound(), 0, as_set=True).account) == jcts(then)
    to_the_end = run_again(rebuilt, find("fifo").bound(), 0)
    assert [jcts(to_the_end.account)[f"j{n}"] for n in (2, 7)] == [196.0, 379.0], "two at a time, in order"
    assert jcts(to_the_end.account) != jcts(then)


def test_lost_nodes_are_lost_again_but_crashes_count_as_work() -> None:
    work = workload(
        submission(job("a"), run_s=100.0, crashes_s=(50.0,)),
        faults=[Fault(10.0, "n1", 40.0), Fault(60.0, "n2")],
    )
    _run, _then, rebuilt = recorded(work, cluster("3x1"))
    assert set(rebuilt.workload.faults) == set(work.faults)
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert truth.crashes_s == ()
    assert truth.run_s == pytest.approx(150.0)  # It did the first half over.


def test_what_was_lost_with_a_node_is_lost_again_and_no_work() -> None:
    work = workload(submission(job("a"), run_s=1000.0), faults=[Fault(900.0, "n0", 901.0)])
    _run, then, rebuilt = recorded(work, cluster("1x1"))
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert truth.run_s == pytest.approx(1000.0)
    assert jcts(run_again(rebuilt, find("fifo").bound(), 0).account) == jcts(then) == {"a": pytest.approx(1901.0)}


def test_what_was_kept_before_a_node_was_lost_is_work() -> None:
    # They take turns of 1,800 s; `b` has done 200 s when it loses its node, and `a`, which is paused, loses nothing.
    turns = [submission(job(name), run_s=3000.0) for name in "ab"]
    _run, then, rebuilt = recorded(
        workload(*turns, faults=[Fault(2000.0, "n0", 2001.0)]), cluster("1x1"), "round_robin"
    )
    assert [s.truth.run_s for s in rebuilt.workload.submissions] == pytest.approx([3000.0, 3000.0])
    assert jcts(run_again(rebuilt, find("round_robin").bound(), 0).account) == pytest.approx(jcts(then))


@pytest.mark.parametrize(("saves", "left_s"), [(1, 100.0), (6, 400.0)])
def test_what_a_job_kept_by_itself_shows_in_the_epoch_it_went_on_from(saves: int, left_s: float) -> None:
    saver = submission(job("a"), run_s=1000.0, epochs=10, saves_epochs=saves)  # At 950 s it has ended nine epochs.
    _run, then, rebuilt = recorded(workload(saver, faults=[Fault(950.0, "n0", 951.0)]), cluster("1x1"))
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert (truth.run_s, truth.saves_epochs) == (pytest.approx(1000.0), saves)
    again = run_again(rebuilt, find("fifo").bound(), 0)
    assert jcts(again.account) == pytest.approx(jcts(then)) == {"a": pytest.approx(951.0 + left_s)}


def test_tasks_of_one_job_do_its_work_once() -> None:
    graph = TaskGraph((Task("x", Demand(gpus=1)), Task("y", Demand(gpus=1))))
    _run, then, rebuilt = recorded(workload(submission(job("a", tasks=graph), run_s=100.0)), cluster("1x2"), "gandiva")
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert truth.run_s == pytest.approx(100.0)
    assert rebuilt.shared == {}
    assert jcts(run_again(rebuilt, find("gandiva").bound(), 0).account) == pytest.approx(jcts(then))


def test_time_in_a_pack_is_less_work_and_named() -> None:
    # Two equal steps take 1.6 times as long as one, so 100 s of work take 160 s.
    models = [submission(job(name, kind=Kind.MODEL), run_s=100.0) for name in "ab"]
    _run, then, rebuilt = recorded(workload(*models), cluster("1x1"), "pack_gain")
    assert jcts(then) == {"a": pytest.approx(160.0), "b": pytest.approx(160.0)}
    assert [s.truth.run_s for s in rebuilt.workload.submissions] == pytest.approx([100.0, 100.0])
    assert list(rebuilt.shared) == ["a", "b"]
    assert "shared resources for 100% of its time" in rebuilt.shared["a"]
    fifo = run_again(rebuilt, find("fifo").bound(), 0)
    assert jcts(fifo.account) == {"a": pytest.approx(100.0), "b": pytest.approx(200.0)}


def test_taking_turns_is_less_work_by_the_phases_that_were_observed() -> None:
    both = Partition("p", (Slice("n0", (), 1.0),), tuple(Tenant(j, (1,)) for j in "ab"), Sharing.INTERLEAVED)
    put = Plan((both,))
    cycles = [
        Cycle(0.0, tuple(JobSubmitted(0.0, job(j)) for j in "ab"), put),
        Cycle(0.0, tuple(JobStarted(0.0, j) for j in "ab")),
        Cycle(30.0, tuple(PhasesObserved(30.0, j, 1, 3.0, 1.0, 3) for j in "ab")),
        Cycle(600.0, tuple(JobEnded(600.0, j) for j in "ab")),
    ]
    accounted = account(Header("harmony", {}, (Node("n0", cores=1.0),)), cycles)
    rebuilt = rebuild(accounted, cycles)
    # Their COMPs take turns: an iteration takes 6 s beside the other, and 4 s alone.
    assert [s.truth.run_s for s in rebuilt.workload.submissions] == pytest.approx([400.0, 400.0])
    assert {(s.truth.comp_s, s.truth.comm_s) for s in rebuilt.workload.submissions} == {(3.0, 1.0)}
    assert list(rebuilt.shared) == ["a", "b"]


def test_jobs_on_kinds_they_never_ran_on_are_named() -> None:
    first, second = submission(job("a"), run_s=100.0), submission(job("b", deadline_s=300.0), run_s=100.0)
    nodes = [Node("n0", gpus=1, gpu_kind="v100"), Node("n1", gpus=1, gpu_kind="k80")]
    _run, _then, rebuilt = recorded(workload(first, second), nodes)
    assert rebuilt.seen == {"a": {Place(1, "v100")}, "b": {Place(1, "k80")}}
    urgent = run_again(rebuilt, find("edf").bound(), 0)  # `b` goes first
    assert urgent.extrapolated == {"a": (Place(1, "k80"),), "b": (Place(1, "v100"),)}


def test_what_was_told_of_kinds_of_gpus_counts() -> None:
    slow = submission(job("a"), run_s=100.0, kinds={"k80": 0.5})
    slow = replace(slow, beliefs=Beliefs(kinds={"k80": 0.5}))
    _run, then, rebuilt = recorded(workload(slow), [Node("n0", gpus=1, gpu_kind="k80")])
    assert jcts(then) == {"a": pytest.approx(200.0)}
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert truth.run_s == pytest.approx(100.0)


def test_work_is_time_at_the_size_it_ran_at() -> None:
    _run, _then, rebuilt = recorded(workload(submission(job("a", 4), run_s=300.0)), cluster("1x4"))
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert (truth.run_s, truth.reference_size) == (pytest.approx(300.0), 4)
    assert rebuilt.seen == {"a": frozenset({Place(4)})}


def test_jobs_at_sizes_they_never_ran_at_are_named() -> None:
    # `a` runs at 4 while it is alone; under `fair` it is made smaller for `b`.
    elastic = submission(job("a", 1, 2, 4, owner="ana"), run_s=1000.0)
    rigid = submission(job("b", 2, owner="ben"), at_s=100.0, run_s=1000.0)
    _run, _then, rebuilt = recorded(workload(elastic, rigid), cluster("1x4"), lend=False)
    assert rebuilt.seen["a"] == {Place(4)}
    assert not rebuilt.loss_fitted
    assert run_again(rebuilt, find("fifo").bound({"lend": False}), 0).extrapolated == {}
    assert run_again(rebuilt, find("fair").bound(), 0).extrapolated == {"a": (Place(2),)}


def test_speeds_at_sizes_it_ran_at_are_fitted() -> None:
    loss = 0.2
    speed = Curve(tuple(Point(float(n), n / (1 + loss * (n - 1)) / (4 / (1 + loss * 3))) for n in (1, 2, 4)))
    elastic = submission(job("a", 1, 2, 4, owner="ana"), run_s=1000.0, speed=speed, epochs=100)
    rigid = submission(job("b", 2, owner="ben"), at_s=100.0, run_s=300.0)
    _run, then, rebuilt = recorded(workload(elastic, rigid), cluster("1x4"), "fair")
    assert rebuilt.loss_fitted
    assert rebuilt.loss == pytest.approx(loss, abs=0.03)
    found = band(then, run_again(rebuilt, find("fair").bound(), 0).account)
    assert found.jobs_p95_share is not None
    assert found.jobs_p95_share < 0.02


def test_jobs_that_had_not_ended_are_named_and_run_on() -> None:
    work = workload(submission(job("short"), run_s=100.0), submission(job("long"), run_s=5000.0))
    _run, then, rebuilt = recorded(work, cluster("1x2"), until_s=1000.0)
    assert then.jobs[1].ended_s is None
    assert list(rebuilt.unfinished) == ["long"]
    assert "had not ended" in rebuilt.unfinished["long"]
    again = run_again(rebuilt, find("fifo").bound(), 0)
    assert again.summary.unfinished == 0
    assert band(then, again.account).share == pytest.approx(0.0)  # over those that had ended


def test_jobs_that_missed_their_criterion_are_named() -> None:
    late = submission(job("late", criterion=parse("acc >= 90% within 100s")), run_s=1000.0, epochs=10, metric="acc")
    _run, then, rebuilt = recorded(workload(late), cluster("1x1"))
    assert then.jobs[0].verdict == "missed"
    assert "missed" in rebuilt.unfinished["late"]


def test_a_job_that_ended_by_itself_before_its_goal_does_so_again() -> None:
    curve = Curve((Point(1.0, 0.1), Point(10.0, 0.8)))
    until = parse("acc >= 90% within 1h")
    short = submission(job("short", criterion=until), run_s=1000.0, epochs=10, metric="acc", quality=curve)
    _run, then, rebuilt = recorded(workload(short), cluster("1x1"))
    assert not rebuilt.unfinished
    again = run_again(rebuilt, find("fifo").bound(), 0).account
    assert [(r.verdict, r.jct_s) for r in again.jobs] == [(r.verdict, r.jct_s) for r in then.jobs] == [("missed", 1000)]


def test_a_job_that_was_given_a_time_is_given_it_again() -> None:
    timed = submission(job("timed", 1, 2, criterion=parse("for 10m")), run_s=1e6, costs=Costs(start_s=5.0))
    _run, then, rebuilt = recorded(workload(timed), cluster("1x2"))
    again = run_again(rebuilt, find("fifo").bound(), 0)
    assert jcts(again.account) == jcts(then) == {"timed": pytest.approx(605.0)}


@pytest.mark.parametrize(
    ("saved_s", "given", "protected"),
    [
        ((), Preempt.SAVED, (Preempt.NEVER, 0.0)),
        ((310.0, 500.0), Preempt.SAVED, (Preempt.ALWAYS, 300.0)),  # It starts at 10 s.
        ((), Preempt.ALWAYS, (Preempt.ALWAYS, 0.0)),
    ],
)
def test_a_job_is_protected_until_it_saved_as_it_was(
    saved_s: tuple[float, ...], given: Preempt, protected: tuple[Preempt, float]
) -> None:
    run, _then, _rebuilt = recorded(
        workload(submission(job("a"), run_s=1000.0, costs=Costs(start_s=10.0))), cluster("1x1")
    )
    cycles = []
    for cycle in run.journal:
        events = [
            replace(event, job=replace(event.job, preempt=given)) if isinstance(event, JobSubmitted) else event
            for event in cycle.events
        ]
        if any(isinstance(event, JobEnded) for event in events):
            cycles += [Cycle(at_s, (JobSaved(at_s, "a"),)) for at_s in saved_s]
        cycles.append(replace(cycle, events=tuple(events)))
    again = rebuild(account(run.journal.header, cycles), cycles).workload.submissions[0].job
    assert (again.preempt, again.min_run_s) == protected


def test_a_refused_job_is_not_run_again() -> None:
    _run, _then, rebuilt = recorded(workload(submission(job("fits")), submission(job("huge", 64))), cluster("1x1"))
    assert [s.job.id for s in rebuilt.workload.submissions] == ["fits"]


def test_without_an_ended_job_there_is_no_band() -> None:
    _run, then, rebuilt = recorded(workload(submission(job("a"), run_s=1e6)), cluster("1x1"), until_s=10.0)
    found = band(then, run_again(rebuilt, find("fifo").bound(), 0).account)
    assert found.share is None
    assert found.jct_mean_recorded_s is None


def test_many_names_are_cut_short() -> None:
    assert names(["a", "b"]) == "a, b"
    assert names((f"j{n}" for n in range(1010)), most=2) == "j0, j1 and 1,008 more"
