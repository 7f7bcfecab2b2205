"""What the jobs of trials report, and what is asked of them."""

import pytest

from hocket.tune.definition import StudyError
from hocket.tune.job_trials import (
    JobLook,
    JobReport,
    NextStep,
    RungReached,
    TrialFailed,
    Want,
    next_step,
    result_of,
    unit_of,
)

EPOCH = unit_of("1 epoch")


def look(*reports, state="running", is_over=False, metrics=None, reason=""):
    """A job that reported (epoch, step, metrics)."""
    said = [JobReport(*r) for r in reports]
    last = metrics if metrics is not None else {k: v for r in said for k, v in r.metrics.items()}
    epoch, step = (max((getattr(r, n) for r in said), default=0) for n in ("epoch", "step"))
    return JobLook(state, is_over, epoch, step, last, said, reason)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1 epoch", "1 epoch"), ("epoch", "1 epoch"), ("100 steps", "100 steps"), ("2 epochs", "2 epochs")],
)
def test_a_unit_is_epochs_or_steps(text, shown):
    assert str(unit_of(text)) == shown


@pytest.mark.parametrize("text", ["2 hours", "0 epochs", "1.5 epochs", "", "100", "steps steps"])
def test_another_unit_is_refused(text):
    with pytest.raises(StudyError, match="unit must be epochs or steps"):
        unit_of(text)


def test_the_first_value_at_the_rung_or_beyond_counts():
    seen = look((2, 0, {"acc": 0.2}), (3, 0, {"loss": 1.0}), (3, 0, {"acc": 0.3}), (4, 0, {"acc": 0.4}))
    assert result_of(seen, EPOCH, 3, "acc") == RungReached({"acc": 0.3})
    assert result_of(seen, EPOCH, 4, "acc") == RungReached({"acc": 0.4})
    assert result_of(seen, EPOCH, 5, "acc") is None


def test_units_of_steps_are_counted_in_steps():
    unit = unit_of("100 steps")
    seen = look((1, 250, {"acc": 0.2}), (1, 300, {"acc": 0.3}))
    assert result_of(seen, unit, 3, "acc") == RungReached({"acc": 0.3})
    assert result_of(seen, unit, 4, "acc") is None
    assert unit.bound(9) == "for 1000 steps"


def test_a_job_that_ends_by_itself_keeps_its_last_value():
    assert result_of(look(state="finished", is_over=True, metrics={"acc": 0.7}), EPOCH, 9, "acc") == RungReached(
        {"acc": 0.7}
    )
    ended = result_of(look(state="failed", is_over=True, metrics={"acc": 0.7}, reason="exit code 1"), EPOCH, 9, "acc")
    assert ended == TrialFailed("exit code 1")


def test_a_value_that_is_no_number_is_a_failure():
    assert isinstance(result_of(look((1, 0, {"acc": None})), EPOCH, 1, "acc"), TrialFailed)


def test_a_metric_that_never_comes_is_seen_one_unit_later():
    assert result_of(look((1, 0, {"loss": 1.0})), EPOCH, 1, "acc") is None, "it may come in the next line"
    found = result_of(look((1, 0, {"loss": 1.0}), (2, 0, {"loss": 0.5})), EPOCH, 1, "acc")
    assert found == TrialFailed("it has done 2 epochs and reported loss, but not 'acc', which is the metric", True)
    assert result_of(look((1, 0, {"acc": 0.1}), (3, 0, {"loss": 1.0})), EPOCH, 2, "acc") is None, "it reports it rarely"
    ended = result_of(look(state="finished", is_over=True), EPOCH, 1, "acc")
    assert ended == TrialFailed("it ended and reported no value at all, but not 'acc', which is the metric", True)


@pytest.mark.parametrize(
    ("want", "state", "last", "asked"),
    [
        (Want.RUN, None, NextStep.NOTHING, NextStep.SUBMIT),
        (Want.RUN, "held", NextStep.PAUSE, NextStep.RESUME),
        (Want.RUN, "pausing", NextStep.PAUSE, NextStep.RESUME),
        (Want.RUN, "held", NextStep.NOTHING, NextStep.RESUME),  # paused by a process before this one
        (Want.RUN, "held", NextStep.RESUME, NextStep.NOTHING),  # paused by a user
        (Want.RUN, "waiting", NextStep.NOTHING, NextStep.NOTHING),
        (Want.RUN, "paused", NextStep.RESUME, NextStep.NOTHING),  # by the policy, which resumes it
        (Want.PAUSE, "running", NextStep.RESUME, NextStep.PAUSE),
        (Want.PAUSE, "pausing", NextStep.PAUSE, NextStep.NOTHING),
        (Want.PAUSE, None, NextStep.NOTHING, NextStep.NOTHING),
        (Want.STOP, "held", NextStep.PAUSE, NextStep.STOP),
        (Want.STOP, "ending", NextStep.STOP, NextStep.NOTHING),
    ],
)
def test_what_is_asked_is_the_difference_between_what_is_wanted_and_what_is(want, state, last, asked):
    assert next_step(want, None if state is None else JobLook(state, False), last) is asked


@pytest.mark.parametrize("want", Want)
def test_nothing_is_asked_of_a_job_that_is_over(want):
    assert next_step(want, JobLook("finished", True), NextStep.NOTHING) is NextStep.NOTHING
