"""Where states of paused jobs are kept: memory goes to the jobs for which it saves most, within the budget."""

from __future__ import annotations

from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, JobAsked, JobPaused, JobRequest, JobSubmitted, ProgressReported
from hocket.model.job import Job, Kind
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node
from hocket.model.view import Tier
from hocket.policies import find
from hocket.policies.kit.suspended_states import kept_states, most_saved
from hocket.testing.harness import Harness

MACHINE = [Node("n", cores=2.0, mem_mib=10_000.0)]
SLOW_TO_WRITE = {"state_mib": 500.0, "redo_s": 100.0, "write_s": 20.0, "read_s": 5.0, "process_mib": 2000.0}
SMALL = {"state_mib": 500.0, "redo_s": 100.0, "write_s": 20.0, "read_s": 5.0, "process_mib": 1000.0}


def two_queries(**knobs: object) -> Harness:
    """Two queries that run, and have said what their states take."""
    harness = Harness.of(find("rotary").bound(knobs), MACHINE)
    jobs = [Job(name, kind=Kind.QUERY, demand=Demand(cores=1.0)) for name in ("large", "small")]
    harness.tell(*(JobSubmitted(0.0, job) for job in jobs))
    harness.settle()
    harness.tell(ProgressReported(1.0, "large", 0, SLOW_TO_WRITE, step=1))
    harness.tell(ProgressReported(1.0, "small", 0, SMALL, step=1))
    return harness


BOTH_PAUSE = Plan(drop=("large", "small"))


def test_memory_goes_where_it_saves_most_for_each_mebibyte() -> None:
    snapshot = two_queries().snapshot
    assert kept_states(BOTH_PAUSE, snapshot, 0.3) == {"large": Tier.MEMORY, "small": Tier.MEMORY}
    assert kept_states(BOTH_PAUSE, snapshot, 0.2) == {"large": Tier.DISK, "small": Tier.MEMORY}
    assert kept_states(BOTH_PAUSE, snapshot, 0.0) == {"large": Tier.DISK, "small": Tier.DISK}


def test_what_is_sooner_redone_than_written_is_kept_nowhere() -> None:
    harness = two_queries()
    harness.tell(ProgressReported(2.0, "small", 0, {**SMALL, "redo_s": 1.0}, step=2))
    assert kept_states(Plan(drop=("small",)), harness.snapshot, 0.0) == {"small": Tier.NONE}


def test_a_job_that_the_plan_places_elsewhere_is_not_told_where_its_state_goes() -> None:
    snapshot = two_queries().snapshot
    put = (snapshot.partitions["small"],)
    assert kept_states(Plan(put=put, drop=("large", "small")), snapshot, 1.0) == {"large": Tier.MEMORY}


def test_a_suspended_process_makes_way_for_one_that_saves_more() -> None:
    harness = two_queries()
    harness.tell(JobAsked(2.0, "large", JobRequest.PAUSE))
    harness.tell(JobPaused(3.0, "large", tier=Tier.MEMORY, node="n", mem_mib=2000.0))
    snapshot = harness.snapshot
    assert snapshot.jobs["large"].suspended is not None
    assert kept_states(Plan(drop=("small",)), snapshot, 0.3) == {"small": Tier.MEMORY}
    assert kept_states(Plan(drop=("small",)), snapshot, 0.2) == {"small": Tier.MEMORY, "large": Tier.DISK}


def test_rotary_says_where_only_if_it_is_asked_to() -> None:
    for suspend, tiers in (("auto", {}), ("arbitrated", {"small": Tier.MEMORY})):
        harness = two_queries(suspend=suspend)
        sure = Job("sure", kind=Kind.QUERY, demand=Demand(cores=1.0), criterion=parse("for 10s"))
        harness.tell(JobSubmitted(2.0, sure))
        harness.tell(EpochEnded(50.0, "small", 1, SMALL))
        plan = harness.asked[-1][1]
        assert plan.drop == ("small",)
        assert plan.tiers == tiers


def test_fixed_rules_keep_every_state_in_one_way_and_the_first_in_memory_stay_there() -> None:
    harness = two_queries()
    snapshot = harness.snapshot
    assert kept_states(BOTH_PAUSE, snapshot, 1.0, "disk") == {"large": Tier.DISK, "small": Tier.DISK}
    assert kept_states(BOTH_PAUSE, snapshot, 1.0, "redo") == {"large": Tier.NONE, "small": Tier.NONE}
    assert kept_states(BOTH_PAUSE, snapshot, 0.2, "memory") == {"large": Tier.MEMORY, "small": Tier.DISK}
    harness.tell(JobAsked(2.0, "large", JobRequest.PAUSE))
    harness.tell(JobPaused(3.0, "large", tier=Tier.MEMORY, node="n", mem_mib=2000.0))
    assert kept_states(Plan(drop=("small",)), harness.snapshot, 0.2, "memory") == {"small": Tier.DISK}
    assert kept_states(Plan(drop=("small",)), harness.snapshot, 0.3, "memory") == {"small": Tier.MEMORY}


def test_two_small_states_may_save_more_than_a_large_one_that_saves_most_for_each_mebibyte() -> None:
    large, small = (10.0, 60.0), (6.0, 45.0)
    assert most_saved([large, small, small], 100.0) == {1, 2}
    assert most_saved([large, small, small], 80.0) == {0}
    assert most_saved([large, small, (-1.0, 1.0)], 200.0) == {0, 1}
    assert most_saved([large] + [small] * 20, 100.0) == {0}  # Of many, the worth of each decides.
