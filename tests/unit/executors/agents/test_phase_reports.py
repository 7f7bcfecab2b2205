"""What nodes measure of a job's phases becomes one observation, which the controller learns from."""

from functools import partial

import pytest
from msgspec.structs import replace
from tests.unit.executors.agents.test_executor import NODE, STARTED, World, job

from hocket.agent.protocol import Report, RunKey
from hocket.executors.agents.phase_reports import PhaseReports
from hocket.model.curve import Point
from hocket.model.event import PhasesObserved
from hocket.model.job import Kind
from hocket.model.partition import Holding
from hocket.model.resources import Slice
from hocket.model.view import Tenancy
from hocket.testing.builders import snapshot, submitted


@pytest.fixture
def kind_of_world():
    return partial(World, policy="srtf")  # It reads beliefs.


MEANS = {"iteration": 4, "iterations": 3, "comp_s": 2.0, "comm_s": 0.5}


def report(run: RunKey, **fields) -> Report:
    return Report(run, 0, 1.0, "phases", {**MEANS, **fields})


def view_on(*nodes: str):
    """A job that runs there, as its first run."""
    held = Holding("p", tuple(Slice(node) for node in nodes), (1,) * len(nodes))
    view = snapshot([NODE], submitted(job())).jobs["a"]
    return replace(view, starts=1, tenancies=(Tenancy("", held),))


def test_the_phases_of_a_run_are_in_the_jobs_beliefs_and_a_report_that_comes_twice_counts_once(world):
    world.submit(job(kind=Kind.PARAMETER_SERVER))
    (order,) = world.orders()
    assert order.spec["phase_tokens"] is True
    world.say(order.run, STARTED)
    for _ in range(2):
        world.engine.executor.report([report(order.run)], NODE.id).result(60.0)
    beliefs = world.engine.snapshot.jobs["a"].beliefs
    assert beliefs.comp_s.points == (Point(1.0, 2.0, 0.0, 3),)
    assert beliefs.comm_s.points == (Point(1.0, 0.5, 0.0, 3),)
    world.engine.executor.report([report(order.run, iteration=9, comp_s=4.0)], NODE.id).result(60.0)
    assert world.engine.snapshot.jobs["a"].beliefs.comp_s.points[0].mean == 3.0


def test_other_jobs_are_not_offered_tokens(world):
    world.submit(job())
    (order,) = world.orders()
    assert "phase_tokens" not in order.spec


def test_a_job_on_several_nodes_is_observed_when_all_have_reported():
    view, reports = view_on("left", "right"), PhaseReports()
    run = RunKey("a", 1)
    assert reports.add_report(view, report(run, iteration=4), "left", 10.0) == []
    assert reports.add_report(view, report(run, iteration=8, comp_s=3.0), "left", 11.0) == []
    (seen,) = reports.add_report(
        view, report(run, iteration=5, comp_s=1.0, iterations=2, link=0.5, meeting_s=0.25), "right", 12.0
    )
    assert seen == PhasesObserved(
        12.0, "a", 2, comp_s=2.0, comm_s=0.5, iterations=2, slowest=3.5 / 2.5, link=0.75, meeting_s=0.25, own_part=1.0
    )
    assert reports.add_report(view, report(run, iteration=8), "left", 13.0) == []


def test_a_comm_that_had_half_of_the_link_counts_as_if_it_had_it_all():
    view, reports, run = view_on("left", "right"), PhaseReports(), RunKey("a", 1)
    assert reports.add_report(view, report(run, shared_s=0.2), "left", 10.0) == []
    (seen,) = reports.add_report(view, report(run, comm_s=0.7), "right", 12.0)
    assert (seen.comp_s, seen.comm_s, seen.slowest) == pytest.approx((2.0, 0.5, 2.6 / 2.5))
    assert reports.add_report(view, report(run, iteration=5, shared_s=99.0), "left", 10.0) == []
    (seen,) = reports.add_report(view, report(run, iteration=5), "right", 12.0)
    assert seen.comm_s == 0.25


def test_reports_of_other_runs_and_of_other_words_are_ignored():
    view, reports = view_on("left"), PhaseReports()
    assert reports.add_report(view, report(RunKey("a", 2)), "left", 10.0) == []
    assert reports.add_report(view, report(RunKey("a", 1), comp_s=None), "left", 10.0) == []
    assert len(reports.add_report(view, report(RunKey("a", 1)), "left", 10.0)) == 1
    again = replace(view, starts=2)
    assert reports.add_report(again, report(RunKey("a", 1), iteration=99), "left", 11.0) == []
    assert len(reports.add_report(again, report(RunKey("a", 2), iteration=1), "left", 12.0)) == 1
