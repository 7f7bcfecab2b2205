"""Weighted dominant resource fairness by progressive filling."""

import pytest

from hocket.policies.kit.dominant_shares import fair_shares


def test_the_example_of_the_drf_paper():
    # 9 cores and 18 GB; <1 core, 4 GB> and <3 cores, 1 GB>: both end at two thirds of their dominant resource.
    assert fair_shares((9.0, 18.0), [((1.0, 4.0), 1.0, 100), ((3.0, 1.0), 1.0, 100)]) == pytest.approx((2 / 3, 2 / 3))


def test_shares_rise_in_proportion_to_weights():
    assert fair_shares((12.0,), [((1.0,), 1.0, 100), ((1.0,), 3.0, 100)]) == pytest.approx((0.25, 0.75))


def test_what_one_cannot_use_goes_to_the_others():
    assert fair_shares((12.0,), [((1.0,), 1.0, 2), ((1.0,), 1.0, 100)]) == pytest.approx((2 / 12, 10 / 12))


def test_an_application_stops_when_something_it_needs_is_used_up_and_others_go_on():
    shares = fair_shares((10.0, 10.0), [((1.0, 1.0), 1.0, 100), ((1.0, 0.0), 1.0, 100), ((0.0, 1.0), 1.0, 3)])
    assert shares == pytest.approx((0.5, 0.5, 0.3))


def test_equal_applications_have_equal_shares_and_all_together_no_more_than_there_is():
    shares = fair_shares((7.0, 3.0), [((1.0, 0.5), 2.0, 4)] * 9)
    assert len(set(shares)) == 1
    assert sum(shares) <= 1 + 1e-9
