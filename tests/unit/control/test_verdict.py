"""Has a job reached what its user asked for?"""

from __future__ import annotations

from typing import Any

import pytest

from hocket.control.timers import next_verdict_s, verdict
from hocket.model.criterion import parse
from hocket.model.event import JobStarted, ProgressReported
from hocket.model.job import Job
from hocket.model.view import JobView, Observation
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def view(criterion: str | None, *values: float, **more: Any) -> JobView:
    """A job submitted at 100 s that reported these accuracies, one an epoch, each 10 s after the last."""
    seen = tuple(Observation(100.0 + 10 * n, n, {"acc": v}) for n, v in enumerate(values, 1))
    job = Job("j", criterion=None if criterion is None else parse(criterion))
    return JobView(job, 0, 100.0, since_s=100.0, observations=seen, epoch=len(values), **more)


def test_a_job_without_a_criterion_is_never_judged() -> None:
    assert verdict(view(None, 0.99), 1e9) is None
    assert next_verdict_s(view(None), 0.0) is None


def test_a_goal_that_is_reached_is_attained_and_says_at_what() -> None:
    assert verdict(view("acc >= 95%", 0.5, 0.96), 120.0) == ("attained", "attained: acc >= 95% (acc is 0.96)")
    assert verdict(view("acc >= 95%", 0.5, 0.9), 120.0) is None


def test_a_goal_that_never_reported_is_missed_without_a_value() -> None:
    assert verdict(view("acc >= 95% within 1m"), 160.0) == ("missed", "missed: acc >= 95% within 1m")


def test_a_deadline_runs_from_submission_whether_the_job_runs_or_not() -> None:
    waits = view("acc >= 95% within 1m", 0.9)
    assert verdict(waits, 159.0) is None
    assert next_verdict_s(waits, 130.0) == 160.0
    assert verdict(waits, 160.0) == ("missed", "missed: acc >= 95% within 1m (acc is 0.9)")


def test_a_deadline_in_epochs_is_reached_by_epochs() -> None:
    assert verdict(view("acc >= 95% within 3 epochs", 0.1, 0.2), 1e9) is None
    assert next_verdict_s(view("acc >= 95% within 3 epochs", 0.1), 0.0) is None
    found = verdict(view("acc >= 95% within 3 epochs", 0.1, 0.2, 0.3), 130.0)
    assert found is not None
    assert found[0] == "missed"


def test_a_value_that_has_stopped_changing_has_converged() -> None:
    found = verdict(view("acc changes < 0.01 within 9 epochs", 0.5, 0.7, 0.705), 130.0)
    assert found is not None
    assert found[0] == "attained"


def test_a_run_time_counts_the_time_it_ran() -> None:
    paused = view("for 1m", ran_s=59.0)
    assert verdict(paused, 1e6) is None
    assert next_verdict_s(paused, 1e6) is None, "it does not run: time alone decides nothing"
    runs = view("for 1m", ran_s=30.0, size=1)
    assert next_verdict_s(runs, 110.0) == pytest.approx(130.0)
    assert verdict(runs, 130.0) == ("attained", "attained: for 1m")


def test_a_job_that_diverges_attains_nothing() -> None:
    assert verdict(view("acc >= 95%", 0.5, float("nan")), 120.0) is None
    assert verdict(view("acc >= 95%", 0.5, float("inf")), 120.0) is None


def test_a_job_without_epochs_is_estimated_and_judged_by_its_steps() -> None:
    harness = Harness.of(find("srtf").bound(), cluster("1x1"))
    harness.tell(submitted(job("a", criterion=parse("loss <= 0.1 within 9000 steps"))), at_s=0.0)
    harness.pending.clear()
    harness.tell(JobStarted(0.0, "a", attempt=1))
    for n in range(1, 6):
        harness.tell(ProgressReported(100.0 * n, "a", 0, {"loss": 1.0 / n}, step=250 * n))
    run_s = harness.snapshot.jobs["a"].beliefs.run_s
    assert run_s is not None
    assert run_s.mean == pytest.approx(1000.0, rel=0.1), "loss is 0.1 at step 2500, and 250 steps take 100 s"
    assert harness.snapshot.jobs["a"].verdict == ""
    harness.tell(ProgressReported(600.0, "a", 0, {"loss": 0.09}, step=1500))
    assert harness.snapshot.jobs["a"].verdict == "attained"
