"""Which jobs may be stopped early, and what is believed about them then."""

import pytest

from hocket.control.admission import refusal
from hocket.model.capacity import Capacity
from hocket.model.criterion import parse
from hocket.model.event import EpochEnded
from hocket.model.job import Stop
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness

TARGET = parse("acc >= 90% within 80 epochs")


@pytest.mark.parametrize("field", ["stop", "may_lower"])
def test_a_job_without_a_goal_cannot_be_stopped_for_one(field):
    whole = Capacity.of(cluster("1x1"))
    found = refusal((), job("a", **{field: Stop.OPTSTOP}), whole)
    assert found == f"job 'a': {field} must be fixed for a job without a goal (its criterion or target), not optstop"
    assert not refusal((), job("a", target=TARGET, **{field: Stop.OPTSTOP}), whole)


def test_a_submission_that_breaks_the_rule_is_refused_though_one_like_it_was_admitted():
    harness = Harness.of(find("fifo").bound(), cluster("1x2"))
    harness.tell(submitted(job("a")))
    harness.tell(submitted(job("b", stop=Stop.REQUIRED), 1))
    assert "b" not in harness.snapshot.jobs


def reported(**more):
    harness = Harness.of(find("srtf").bound(), cluster("1x1"))
    harness.tell(submitted(job("a", **more)))
    harness.settle()
    for epoch in range(1, 9):
        harness.tell(EpochEnded(60.0 * epoch, "a", epoch, {"acc": 0.8 - 0.7 / epoch, "loss": 1 / epoch}))
    return harness.snapshot.jobs["a"].beliefs


def test_what_is_likely_is_learned_of_jobs_that_may_be_stopped_and_of_no_others():
    assert reported(target=TARGET, stop=Stop.OPTSTOP).reach is not None
    assert reported(target=TARGET, may_lower=Stop.REQUIRED).reach is not None
    assert reported(target=TARGET).reach is None
    assert reported(criterion=TARGET, stop=Stop.OPTSTOP).reach is not None


def test_a_target_says_nothing_about_when_a_job_ends():
    assert reported(target=TARGET, stop=Stop.OPTSTOP).run_s is None
    assert reported(criterion=TARGET, stop=Stop.OPTSTOP).run_s is not None


def test_points_that_were_seen_are_kept_for_as_long_as_the_job_lives():
    seen = reported(target=TARGET, stop=Stop.OPTSTOP).quality.points
    assert [p.x for p in seen] == [float(k) for k in range(1, 9)]
