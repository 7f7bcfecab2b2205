"""Running jobs that may not be preempted: until when, what a plan may do to them, and when the policy decides again."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.control.check import violations
from hocket.model.event import EpochEnded, JobFailed, JobPaused, JobSaved, JobStarted, ProgressReported, WorkLost
from hocket.model.job import Preempt
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.view import JobView, Tier
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness

NEVER = "it was submitted with --preempt never"
UNSAVED = "it has not saved its state yet"


def running(policy: str = "fifo", gpus: str = "1x1", sizes: tuple[int, ...] = (1,), **fields: Any) -> Harness:
    """A job 'a' that runs since second 10."""
    harness = Harness.of(find(policy).bound(), cluster(gpus))
    harness.tell(submitted(job("a", *sizes, **fields)), at_s=0.0)
    harness.pending.clear()
    harness.tell(JobStarted(10.0, "a", attempt=1))
    return harness


def view(harness: Harness) -> JobView:
    return harness.snapshot.jobs["a"]


@pytest.mark.parametrize(
    ("fields", "at_s", "why"),
    [
        ({}, 10, ""),
        ({"preempt": Preempt.NEVER}, 1e9, NEVER),
        ({"preempt": Preempt.NEVER, "protect_s": 50}, 59.9, NEVER),
        ({"preempt": Preempt.NEVER, "protect_s": 50}, 60, ""),
        ({"preempt": Preempt.SAVED}, 1e9, UNSAVED),
        ({"preempt": Preempt.SAVED, "protect_s": 50}, 60, ""),
        ({"min_run_s": 30}, 39.9, "it was submitted with --min-run and has run for less than 30 s"),
        ({"min_run_s": 30}, 40, ""),
        ({"min_run_s": 30, "protect_s": 5}, 15, ""),
    ],
)
def test_until_when_a_running_job_is_protected(fields: dict[str, Any], at_s: float, why: str) -> None:
    assert view(running(**fields)).protected_at(at_s) == why


def test_a_job_that_has_saved_once_may_be_preempted_also_in_later_runs() -> None:
    harness = running(preempt=Preempt.SAVED)
    harness.tell(JobSaved(20.0, "a"))
    assert not view(harness).protected_at(20.0)
    harness.tell(JobFailed(30.0, "a", "it broke"))
    harness.tell(JobStarted(40.0, "a", attempt=2))
    assert not view(harness).protected_at(40.0)


def test_a_job_that_waits_or_starts_is_not_protected() -> None:
    harness = Harness.of(find("fifo").bound(), cluster("1x1"))
    harness.tell(submitted(job("a", preempt=Preempt.NEVER)), at_s=0.0)
    assert not view(harness).protected_at(0.0)


def test_a_plan_that_takes_a_protected_jobs_resources_breaks_a_rule() -> None:
    snapshot = running("static", "1x4", (1, 2), preempt=Preempt.NEVER).snapshot
    kept = snapshot.partitions["a"]
    reasons = {"a": "because"}
    dropped = Plan(drop=("a",), reasons=reasons)
    larger = Plan(
        put=(Partition("a", (Slice("n0", (0, 1)),), (Tenant("a", (2,)),)),),
        reasons=reasons,
    )
    moved = Plan(put=(Partition("a", (Slice("n0", (3,)),), (Tenant("a", (1,)),)),), reasons=reasons)
    for plan in (dropped, larger, moved):
        assert violations(snapshot, plan) == [f"job 'a' must keep its resources: {NEVER}"]
    assert violations(snapshot, Plan(put=(kept,), reasons=reasons)) == []


@pytest.mark.parametrize(
    ("fields", "until_s"), [({"min_run_s": 5000.0}, 5010.0), ({"preempt": Preempt.NEVER, "protect_s": 5000.0}, 5010.0)]
)
def test_las_preempts_a_job_of_a_lower_level_the_moment_its_protection_ends(
    fields: dict[str, Any], until_s: float
) -> None:
    harness = running("las", **fields)
    harness.tell(submitted(job("b"), 4000.0))  # 'a' is on the second level since 3610.
    assert list(harness.snapshot.partitions) == ["a"]
    assert harness.controller.next_timer_s() == until_s
    harness.tell(at_s=until_s)
    assert list(harness.snapshot.partitions) == ["b"]


def test_las_preempts_a_job_the_moment_it_has_saved() -> None:
    harness = running("las", preempt=Preempt.SAVED)
    harness.tell(submitted(job("b"), 4000.0))
    assert list(harness.snapshot.partitions) == ["a"]
    harness.tell(JobSaved(4500.0, "a"))
    assert list(harness.snapshot.partitions) == ["b"]


def test_what_is_not_saved_counts_from_the_last_save_or_the_start() -> None:
    harness = running()
    harness.tell(EpochEnded(100.0, "a", 1, {}))
    harness.tell(EpochEnded(200.0, "a", 2, {}))
    assert view(harness).unsaved_at(250.0) == (240.0, 2, 0)
    harness.tell(JobSaved(260.0, "a"))
    assert view(harness).unsaved_at(260.0) == (0.0, 0, 0)
    harness.tell(EpochEnded(300.0, "a", 3, {}))
    assert view(harness).unsaved_at(310.0) == (50.0, 1, 0)
    assert view(harness).tier is Tier.DISK


def test_of_a_job_without_epochs_steps_are_lost() -> None:
    harness = running()
    harness.tell(ProgressReported(100.0, "a", 0, {"loss": 0.5}, step=250))
    harness.tell(JobSaved(150.0, "a"))
    harness.tell(ProgressReported(200.0, "a", 0, {"loss": 0.4}, step=700))
    assert view(harness).unsaved_at(250.0) == (100.0, 0, 450)
    assert WorkLost(250.0, "a", 100.0, 0, "it failed", 450).in_words == "100 s of work (450 steps) were not saved"
    harness.tell(EpochEnded(260.0, "a", 1, {}))
    assert view(harness).unsaved_at(270.0) == (120.0, 1, 0), "once it names epochs, those count"


def test_steps_within_an_epoch_take_no_place_among_observations() -> None:
    harness = running()
    harness.tell(EpochEnded(100.0, "a", 1, {"acc": 0.5}))
    for step in range(1, 200):
        harness.tell(ProgressReported(100.0 + step, "a", 1, {}, step=step))
    found = view(harness)
    assert (found.step, [o.metrics for o in found.observations]) == (199, [{"acc": 0.5}])


def test_after_a_loss_the_next_run_counts_anew() -> None:
    harness = running()
    harness.tell(EpochEnded(100.0, "a", 5, {}))
    harness.tell(JobFailed(110.0, "a", "it broke"), WorkLost(110.0, "a", 100.0, 5, "it failed"))
    found = view(harness)
    assert found.run_began_s is None
    assert found.unsaved_at(120.0) == (0.0, 0, 0)
    harness.tell(JobStarted(130.0, "a", attempt=2))
    harness.tell(EpochEnded(140.0, "a", 1, {}))
    assert view(harness).unsaved_at(150.0) == (20.0, 1, 0)


def test_the_reason_of_a_job_that_waits_again_names_what_was_lost() -> None:
    harness = running(backoff_s=1000.0)
    harness.tell(JobFailed(110.0, "a", "it broke"), WorkLost(110.0, "a", 100.0, 5, "it failed"))
    expected = "failed: it broke; starts again after 600 s; 100 s of work (5 epochs) were not saved"
    assert view(harness).reason == expected


def test_a_paused_job_has_no_run() -> None:
    harness = running()
    harness.tell(JobPaused(50.0, "a", tier=Tier.NONE))
    assert view(harness).run_began_s is None


@pytest.mark.parametrize(
    ("lost_s", "epochs", "words"),
    [
        (45.0, 0, "45 s of work were not saved"),
        (720.0, 1, "12 min of work (1 epoch) were not saved"),
        (9000.0, 30, "2.5 h of work (30 epochs) were not saved"),
    ],
)
def test_a_loss_in_words(lost_s: float, epochs: int, words: str) -> None:
    assert WorkLost(0.0, "a", lost_s, epochs, "it was stopped").in_words == words
