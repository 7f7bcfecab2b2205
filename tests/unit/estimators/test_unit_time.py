"""TTR: the time of an epoch, or of all data of a query."""

import pytest

from hocket.estimators.unit_time import from_past, noted, unit_s
from hocket.model.curve import Curve
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
