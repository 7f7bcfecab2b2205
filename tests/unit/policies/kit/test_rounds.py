"""When rounds begin: at multiples of their length, give or take a rounding, and late where the clock is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.policies.kit.rounds import is_due, is_round, next_round_s, round_at, round_from

MOMENTS = st.floats(0, 1e8)
LENGTHS = st.floats(0.01, 1e5)


@pytest.mark.parametrize(
    ("now_s", "begins", "next_s"),
    [(0.0, True, 60.0), (59.0, False, 60.0), (60.0, True, 120.0), (60.0000001, True, 120.0), (59.9999999, True, 120.0)],
)
def test_rounds_begin_at_multiples_of_their_length(now_s, begins, next_s):
    assert is_round(now_s, 60.0) is begins
    assert next_round_s(now_s, 60.0) == next_s


def test_a_round_that_was_asked_for_is_due_though_the_clock_is_late():
    assert is_due(600.4, 300.0, asked_s=600.0)
    assert not is_due(600.4, 300.0, asked_s=900.0)
    assert not is_due(600.4, 300.0, asked_s=None)


@given(MOMENTS, LENGTHS)
def test_a_policy_that_asks_for_the_next_round_is_woken_in_another_round(now_s, round_s):
    at_s = next_round_s(now_s, round_s)
    assert is_round(at_s, round_s)
    assert round_at(at_s, round_s) == round_at(now_s, round_s) + 1


@given(MOMENTS, LENGTHS)
def test_the_first_round_from_a_moment_on_is_this_one_or_the_next(now_s, round_s):
    at_s = round_from(now_s, round_s)
    assert is_round(at_s, round_s)
    assert now_s - 1e-5 <= at_s <= now_s + round_s
