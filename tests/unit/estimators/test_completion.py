"""Rotary's estimators as beliefs of a job: from past jobs at its submission, then by its reports, until it is past."""

from math import nan

import pytest
from msgspec.structs import replace

from hocket.estimators.completion import after_report, at_submission, corrected, correction, with_ended, with_past
from hocket.model.criterion import parse
from hocket.model.curve import NO_BELIEFS, Beliefs, Curve, Point
from hocket.model.job import Job, Kind
from hocket.model.past_job import MAX_PAST_JOBS, NO_PAST_JOBS, PastJob, PastJobs
from hocket.model.view import JobView

CURVE = tuple((float(k), 0.95 - 0.8 * 2 ** (-k / 3)) for k in range(1, 21))
ALIKE = PastJob(model="resnet", metric="acc", points=CURVE, unit_s=30.0)
PAST = PastJobs((ALIKE,))
JOB = Job("j", model="resnet", criterion=parse("acc >= 90% within 20 epochs"))


def view_of(job: Job, past: PastJobs = PAST) -> JobView:
    return JobView(job, 0, 0.0, beliefs=at_submission(job, past, NO_BELIEFS))


def reported(view: JobView, past: PastJobs, epoch: int, done_s: float, **metrics: float) -> JobView:
    from hocket.estimators.quality import refitted
    from hocket.model.criterion import Goal

    beliefs = view.beliefs
    goal = view.job.criterion
    if isinstance(goal, Goal) and view.job.kind is Kind.TRAINING:
        beliefs = refitted(beliefs, goal, epoch, metrics[goal.metric], done_s)
    beliefs = after_report(view, past, beliefs, epoch, metrics, done_s)
    return replace(view, epoch=max(view.epoch, epoch), beliefs=beliefs, starts=1)


def test_a_new_job_is_believed_to_need_what_a_similar_past_job_needed():
    beliefs = view_of(JOB).beliefs
    assert beliefs.completes is not None
    assert beliefs.unit_s is not None
    assert beliefs.unit_s.mean == pytest.approx(30.0)
    truth = next(k for k, v in CURVE if v >= 0.9)
    found = beliefs.completes.first_at_least(0.5)
    assert found is not None
    assert abs(found - truth) < 3


def test_without_past_jobs_nothing_is_believed_of_a_new_job():
    beliefs = view_of(JOB, NO_PAST_JOBS).beliefs
    assert (beliefs.completes, beliefs.unit_s, beliefs.needs_units) == (None, None, None)


def test_a_run_time_in_epochs_needs_no_estimate():
    assert view_of(Job("j", criterion=parse("for 5 epochs")), NO_PAST_JOBS).beliefs.needs_units == 5


def test_reports_replace_what_past_jobs_have_shown():
    view = view_of(JOB)
    for k in range(1, 9):
        view = reported(view, PAST, k, 100.0 * k, acc=0.6 - 0.4 * 2.0**-k)
    beliefs = view.beliefs
    assert beliefs.unit_s is not None
    assert beliefs.unit_s.mean == pytest.approx(100.0)
    assert beliefs.completes is not None
    assert beliefs.completes.points[-1].mean < 0.3  # It has levelled off far below the goal.


def test_epochs_that_go_backwards_change_nothing():
    view = reported(reported(view_of(JOB), PAST, 1, 10.0, acc=0.2), PAST, 2, 20.0, acc=0.3)
    assert after_report(view, PAST, view.beliefs, 1, {"acc": 0.9}, 30.0) is view.beliefs


def test_a_value_that_is_not_a_number_takes_what_was_foretold_back_no_further_than_it_was():
    job = replace(JOB, criterion=parse("acc changes < 0.1% within 20 epochs"))
    view = reported(view_of(job), PAST, 1, 10.0, acc=0.2)
    after = reported(view, PAST, 2, 20.0, acc=nan)
    assert after.beliefs.completes == view.beliefs.completes


def query(goal: str = "acc >= 90% within 600s") -> Job:
    return Job("q", kind=Kind.QUERY, model="q5", criterion=parse(goal), traits={"held_mib": 100.0})


def test_a_query_is_believed_to_need_a_share_of_its_data_and_memory_by_its_plan():
    view = view_of(query(), NO_PAST_JOBS)
    assert view.beliefs.memory_mib is not None
    for n, fraction in enumerate((0.05, 0.1, 0.2), 1):
        accuracy = 1 - 0.1 * ((1 - fraction) / fraction) ** 0.5
        view = reported(view, NO_PAST_JOBS, n, 100 * fraction, acc=accuracy, fraction=fraction)
    assert view.beliefs.needs_units == pytest.approx(0.5, abs=0.1)  # c = 0.1, and an error of 0.1 is wanted
    assert view.beliefs.unit_s is not None
    assert view.beliefs.unit_s.mean == pytest.approx(100.0)
    assert view.beliefs.progress is not None


@pytest.mark.parametrize("reference_size", [1, 4, 20])
def test_times_of_past_jobs_are_those_at_the_smallest_size_whatever_beliefs_refer_to(reference_size):
    """After a few ended jobs, run times are believed at the largest size: what a past query took alone stays that."""
    job = Job("q", kind=Kind.QUERY, model="q1", sizes=tuple(range(1, 21)), criterion=parse("acc >= 90% within 10m"))
    past = PastJobs((PastJob(Kind.QUERY, "q1", metric="acc", points=((0.5, 0.8), (1.0, 1.0)), unit_s=600.0),))
    beliefs = at_submission(job, past, Beliefs(reference_size=reference_size))
    assert beliefs.unit_s is not None
    assert beliefs.unit_s.mean / beliefs.speed_at(1) == pytest.approx(600.0)
    assert beliefs.unit_s.mean / beliefs.speed_at(20) == pytest.approx(600.0 / (20 / 1.95))
    view = JobView(job, 0, 0.0, beliefs=beliefs, starts=1)
    for share in (0.25, 0.5, 1.0):
        done_s = share * 600.0 * beliefs.speed_at(1)
        view = reported(view, past, view.epoch + 1, done_s, acc=0.7, fraction=share)
    assert with_ended(PastJobs(), view).jobs[0].unit_s == pytest.approx(600.0)


def test_an_ended_job_is_a_past_job_for_others():
    view = view_of(JOB, NO_PAST_JOBS)
    for k, value in CURVE:
        view = reported(view, NO_PAST_JOBS, int(k), 10.0 * k, acc=value)
    past = with_ended(NO_PAST_JOBS, view)
    assert [p.model for p in past.jobs] == ["resnet"]
    assert past.jobs[0].points == CURVE
    assert past.jobs[0].unit_s == pytest.approx(10.0)
    assert view_of(JOB, past).beliefs.completes is not None


def test_a_job_that_reported_nothing_is_no_past_job():
    assert with_ended(NO_PAST_JOBS, JobView(Job("j"), 0, 0.0)) is NO_PAST_JOBS


def test_the_oldest_past_jobs_are_forgotten():
    past = with_past(NO_PAST_JOBS, [PastJob(model=f"m{n}", unit_s=1.0) for n in range(MAX_PAST_JOBS + 3)])
    assert len(past.jobs) == MAX_PAST_JOBS
    assert past.jobs[0].model == "m3"


def test_estimates_that_were_too_sure_are_corrected_by_how_often_they_held():
    # Each truth lay at the very end of what was foretold: as likely as not it comes sooner or later than said.
    too_sure = [PastJob(model=f"m{n}", foretold=((0.0, 0.01), (0.99, 1.0))) for n in range(9)]
    by = correction(too_sure)
    raw = Curve((Point(1.0, 0.05), Point(5.0, 0.5), Point(9.0, 0.95)))
    found = [p.mean for p in corrected(raw, by).points]
    assert found[0] > 0.4
    assert found[1] == pytest.approx(0.5, abs=0.01)
    assert found[2] < 0.6


def test_without_anything_foretold_nothing_is_corrected():
    assert correction([PastJob(model="m")]) == ()
    raw = Curve((Point(1.0, 0.3),))
    assert corrected(raw, ()) is raw


def test_an_ended_job_notes_how_estimates_from_other_models_would_have_held():
    others = tuple(
        PastJob(model=f"m{n}", metric="acc", points=tuple((k, v - 0.02 * n) for k, v in CURVE)) for n in range(3)
    )
    past = with_past(PastJobs(others), [ALIKE])
    assert past.jobs[-1].foretold
    assert all(0 <= low <= high <= 1 for low, high in past.jobs[-1].foretold)
    assert len(past.correction) == 21
