"""Your own history under another policy: what a journal tells of its jobs, and how far that can be trusted."""

from __future__ import annotations

import pytest

from hocket.executors.simulated import Simulation, simulate
from hocket.model.criterion import parse
from hocket.model.curve import Curve, Point
from hocket.model.job import Owner
from hocket.model.resources import Node
from hocket.model.view import Costs
from hocket.policies.registry import find
from hocket.reports.account import Account, account
from hocket.reports.whatif import Rebuilt, band, names, rebuild, run_again
from hocket.testing.builders import cluster, job, submission, workload
from hocket.workloads import load
from hocket.workloads.truth import Fault, Workload


def recorded(
    work: Workload, nodes: list[Node], policy: str = "fifo", until_s: float | None = None
) -> tuple[Simulation, Account, Rebuilt]:
    """A run, its account, and what is rebuilt of it."""
    run = simulate(work, nodes, find(policy).bound(), until_s=until_s)
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


def test_work_is_time_at_the_size_it_ran_at() -> None:
    _run, _then, rebuilt = recorded(workload(submission(job("a", 4), run_s=300.0)), cluster("1x4"))
    (truth,) = (s.truth for s in rebuilt.workload.submissions)
    assert (truth.run_s, truth.reference_size) == (pytest.approx(300.0), 4)
    assert rebuilt.seen == {"a": frozenset({4})}


def test_jobs_at_sizes_they_never_ran_at_are_named() -> None:
    # `a` runs at 4 while it is alone; under `fair` it is made smaller for `b`.
    elastic = submission(job("a", 1, 2, 4, owner="ana"), run_s=1000.0)
    rigid = submission(job("b", 2, owner="ben"), at_s=100.0, run_s=1000.0)
    _run, _then, rebuilt = recorded(workload(elastic, rigid), cluster("1x4"))
    assert rebuilt.seen["a"] == {4}
    assert not rebuilt.loss_fitted
    assert run_again(rebuilt, find("fifo").bound(), 0).extrapolated == {}
    assert run_again(rebuilt, find("fair").bound(), 0).extrapolated == {"a": (2,)}


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


def test_a_job_that_was_given_a_time_is_given_it_again() -> None:
    timed = submission(job("timed", 1, 2, criterion=parse("for 10m")), run_s=1e6, costs=Costs(start_s=5.0))
    _run, then, rebuilt = recorded(workload(timed), cluster("1x2"))
    again = run_again(rebuilt, find("fifo").bound(), 0)
    assert jcts(again.account) == jcts(then) == {"timed": pytest.approx(605.0)}


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
