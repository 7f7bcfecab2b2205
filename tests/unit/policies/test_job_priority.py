"""A higher priority goes before all else under the policies that read it; equal priorities change nothing."""

import pytest

from hocket.model.event import JobEnded
from hocket.model.view import JobState
from hocket.policies import find
from hocket.policies.registry import bind
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness

PREEMPTIVE = ("las", "tiresias", "srtf")


def told(name: str, *jobs, gpus: int = 4) -> Harness:
    bound = find(name).bound()
    harness = Harness(bound.decide, cluster(f"1x{gpus}"), bound.order, shifts=bound.shifts)
    for each in jobs:
        harness.tell(submitted(each, run_s=100.0))
        settle(harness)
    return harness


def settle(harness: Harness) -> None:
    while harness.pending:
        harness.answer()


def running(harness: Harness) -> list[str]:
    return sorted(v.id for v in harness.snapshot.jobs.values() if v.state is JobState.RUNNING)


@pytest.mark.parametrize("name", ["backfill", *PREEMPTIVE])
def test_of_waiting_jobs_the_highest_priority_starts_first(name: str) -> None:
    # The first runs at the highest priority, so that none takes its place.
    harness = told(
        name, job("a", 4, priority=9), job("low", 4, priority=-1), job("none", 4), job("high", 4, priority=3)
    )
    for expected in ("a", "high", "none", "low"):
        assert running(harness) == [expected]
        harness.tell(JobEnded(harness.now_s, expected))
        settle(harness)


@pytest.mark.parametrize("name", PREEMPTIVE)
def test_a_higher_priority_takes_the_place_of_the_lowest(name: str) -> None:
    harness = told(name, job("low", 2), job("middle", 2, priority=1), job("high", 2, priority=2))
    assert running(harness) == ["high", "middle"]
    assert "'high' has a higher priority" in harness.snapshot.jobs["low"].reason


@pytest.mark.parametrize("name", ["backfill", *PREEMPTIVE])
def test_a_lower_priority_takes_the_place_of_none(name: str) -> None:
    harness = told(name, job("high", 4, priority=1))
    harness.tell(submitted(job("brief", 4), run_s=1.0, at_s=harness.now_s))
    settle(harness)
    harness.now_s += 50_000.0  # By now the other has had much service, and outlived what was believed.
    harness.tell()
    settle(harness)
    assert running(harness) == ["high"]


def test_backfill_pauses_no_job_for_a_priority() -> None:
    harness = told("backfill", job("low", 4), job("high", 4, priority=1))
    assert running(harness) == ["low"]


def test_a_job_of_a_lower_priority_is_backfilled_only_where_it_does_not_delay_the_higher() -> None:
    harness = told("backfill", job("a", 3), job("large", 4, priority=5), job("long", 1))
    assert running(harness) == ["a", "long"]  # It is done when the first can start.
    harness = told("backfill", job("a", 3), job("large", 4, priority=5))
    harness.tell(submitted(job("long", 1), run_s=500.0, at_s=harness.now_s))
    settle(harness)
    assert running(harness) == ["a"]


def test_fifo_keeps_to_priority_and_then_to_submission() -> None:
    harness = told("fifo", job("a", 4), job("low", 1, priority=-1), job("none", 4), job("high", 4, priority=3))
    for expected in ("a", "high", "none", "low"):
        assert running(harness) == [expected]
        harness.tell(JobEnded(harness.now_s, expected))
        settle(harness)


def test_fifo_starts_a_job_of_higher_priority_before_the_first_in_line_that_does_not_fit() -> None:
    harness = told("fifo", job("a", 3), job("large", 4), job("small", 1, priority=1))
    assert running(harness) == ["a", "small"]


def test_fair_orders_the_jobs_of_one_owner_by_priority_and_takes_nothing_from_others() -> None:
    harness = told("fair", job("a", 4, owner="x"), job("b", 4, owner="x"), job("c", 4, owner="x", priority=5))
    harness.tell(JobEnded(harness.now_s, "a"))
    settle(harness)
    assert running(harness) == ["c"]
    harness = told("fair", job("a", 2, owner="x"), job("b", 2, owner="y"), job("c", 2, owner="x", priority=5))
    assert running(harness) == ["a", "b"]


@pytest.mark.parametrize("name", ["fifo", "backfill", "fair", *PREEMPTIVE])
def test_priority_can_be_turned_off(name: str) -> None:
    bound = find(name).bound({"priority": False})
    assert "priority" not in (bound.reads or ())
    harness = Harness(bound.decide, cluster("1x4"), bound.order, shifts=bound.shifts)
    for each in (job("a", 4, priority=0), job("b", 4, priority=0), job("c", 4, priority=7)):
        harness.tell(submitted(each, run_s=100.0))
        settle(harness)
    harness.tell(JobEnded(harness.now_s, "a"))
    settle(harness)
    assert running(harness) == ["b"]


def test_a_parameter_that_a_journal_does_not_have_decides_as_before() -> None:
    assert bind("las", {"promote": 2.0}).settings["priority"] is False
    assert bind("las", {"priority": True}).settings["priority"] is True
    around = bind("mlfs_c", {"inner": "las", "inner_params": {"promote": 2.0}})
    assert around.inner is not None
    assert (around.inner.settings["priority"], around.inner.settings["promote"]) == (False, 2.0)
