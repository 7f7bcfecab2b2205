"""TTR: the time of an epoch, or of all data of a query."""

import pytest

from hocket.estimators.unit_time import from_past, noted, unit_s, whole_s
from hocket.model.curve import Curve, Estimate
from hocket.model.past_job import PastJob


def times(*points: tuple[float, float]) -> Curve | None:
    found = None
    for units, done_s in points:
        found = noted(found, units, done_s)
    return found


def test_the_first_report_is_dropped():
    found = unit_s(times((1, 100), (2, 110), (3, 120), (4, 130)))
    assert found is not None
    assert found.mean == pytest.approx(10.0)
    assert found.sd == pytest.approx(0.0)


def test_one_report_says_nothing():
    assert unit_s(times((1, 100))) is None
    assert unit_s(None) is None


@pytest.mark.parametrize("report", [(2, 150), (1, 200), (3, 90), (float("nan"), 200), (0, 200), (3, float("inf"))])
def test_reports_that_go_backwards_or_say_nothing_change_nothing(report):
    before = times((1, 100), (2, 110))
    assert noted(before, *report) is before


def test_times_that_differ_make_the_estimate_uncertain():
    steady, uneven = unit_s(times((1, 1), (2, 11), (3, 21))), unit_s(times((1, 1), (2, 5), (3, 21)))
    assert steady is not None
    assert uneven is not None
    assert steady.mean == pytest.approx(uneven.mean)
    assert steady.sd < uneven.sd


def test_a_long_history_keeps_the_first_report_and_the_latest():
    found = times(*((float(k), 10.0 * k) for k in range(1, 40)))
    assert found is not None
    assert len(found.points) == 16
    assert (found.points[0].x, found.points[-1].x) == (1.0, 39.0)


def test_past_jobs_stand_in_and_say_less_the_less_they_are_alike():
    near, far = from_past([(1.0, PastJob(unit_s=20.0))]), from_past([(0.2, PastJob(unit_s=20.0))])
    assert near is not None
    assert far is not None
    assert near.mean == pytest.approx(20.0)
    assert near.sd < far.sd
    assert from_past([(1.0, PastJob())]) is None


# Measured: TPC-H query 21, of which all data take 100 s; each batch is as large as all before it.
BATCHES = ((0.031, 6.5), (0.062, 12.5), (0.125, 21.0), (0.25, 34.6), (0.5, 57.7))


@pytest.mark.parametrize(("seen", "off"), [(2, 1.0), (3, 0.4), (4, 0.2), (5, 0.1)])
def test_the_time_of_a_query_is_not_proportional_to_what_it_has_read(seen, off):
    found = whole_s(times(*BATCHES[:seen]))
    assert found is not None
    assert found.mean == pytest.approx(100.0, rel=off)
    share, at_s = BATCHES[seen - 1]
    assert abs(found.mean - 100.0) < abs(at_s / share - 100.0) or seen == 5


def test_a_past_run_of_the_same_query_counts_until_its_own_reports_are_surer():
    early = whole_s(times(BATCHES[0]), Estimate(100.0))
    late = whole_s(times(*BATCHES), Estimate(500.0))
    assert early is not None
    assert late is not None
    assert early.mean == pytest.approx(100.0, rel=0.1)
    assert late.mean < 300.0
    assert late.sd / late.mean < early.sd / early.mean


def test_a_query_that_has_read_all_has_taken_what_it_takes():
    assert whole_s(times(*BATCHES, (1.0, 99.0)), Estimate(500.0)) == Estimate(99.0)
    assert whole_s(None, Estimate(5.0)) == Estimate(5.0)
    assert whole_s(None) is None
