"""What a few points of a learning curve say about its end, and how sure that is."""

from math import exp, inf, log, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.estimators.convergence import (
    ENOUGH,
    EQUAL,
    FAMILIES,
    PRIOR,
    family_weights,
    learned,
    outlook,
    refitted,
)
from hocket.model.criterion import Goal, parse
from hocket.model.curve import NO_BELIEFS, Beliefs, Curve, Point

CURVES = {
    "power": lambda k: 0.9 - 0.8 * k**-0.7,
    "exponential": lambda k: 0.9 - 0.8 * exp(-k / 15),
    "inverse": lambda k: 0.9 - 0.8 / (1 + k / 6),
    "logarithm": lambda k: 0.1 + 0.15 * log(k),
}


def points(curve, epochs, noise=0.0, seed=1):
    dice = np.random.default_rng(seed)
    return [(float(k), curve(k) + noise * float(dice.standard_normal())) for k in range(1, epochs + 1)]


def chance(found, value):
    return float(found.reaches([value])[0])


def believed(values, relation=">=", target=0.9, last=80, epoch=None):
    beliefs = Beliefs(quality=Curve(tuple(Point(float(k), v, 0.0, 1) for k, v in enumerate(values, 1))))
    return refitted(beliefs, Goal("acc", relation, target), epoch or len(values), last)


@pytest.mark.parametrize("family", CURVES)
def test_a_value_that_the_curve_reaches_is_likely_and_one_well_beyond_is_not(family):
    curve = CURVES[family]
    found = outlook(points(curve, 40, 0.005), 80, rises=True)
    gap = curve(80) - curve(1)
    assert chance(found, curve(80) - 0.1 * gap) > 0.9
    assert chance(found, curve(80) + 0.3 * gap) < 0.05


def test_a_falling_metric_is_a_rising_one_turned_round():
    curve = CURVES["exponential"]
    rising = outlook(points(curve, 30), 80, rises=True)
    falling = outlook([(k, -v) for k, v in points(curve, 30)], 80, rises=False)
    assert chance(falling, -0.88) == pytest.approx(chance(rising, 0.88))


def test_more_is_never_likelier_than_less():
    found = outlook(points(CURVES["power"], 20, 0.02), 80, rises=True)
    assert (np.diff(found.reaches([0.5 + 0.01 * i for i in range(60)])) <= 1e-12).all()


def test_other_weights_of_the_families_can_be_given_afterwards():
    values = points(CURVES["power"], 25, 0.01)
    found, later = outlook(values, 80, True, PRIOR), outlook(values, 80, True, EQUAL).weighed(PRIOR)
    assert later.reaches([0.8, 0.87]) == pytest.approx(found.reaches([0.8, 0.87]))


def test_a_model_that_learns_late_and_then_at_once_is_seen_to():
    late = points(lambda k: 0.2 + 0.6 / (1 + (45 / k) ** 12), 42, 0.003)
    assert late[-1][1] < 0.45
    assert chance(outlook(late, 60, True), 0.65) > 0.5


def test_the_unit_of_the_metric_does_not_matter():
    values = points(CURVES["power"], 25, 0.01)
    found = outlook(values, 80, rises=True)
    other = outlook([(k, 100 * v - 7) for k, v in values], 80, rises=True)
    assert chance(other, 100 * 0.87 - 7) == pytest.approx(chance(found, 0.87))


def test_few_points_or_a_last_epoch_that_is_over_say_nothing():
    values = points(CURVES["power"], 30)
    assert outlook(values[: ENOUGH - 1], 80, rises=True) is None
    assert outlook(values, 30, rises=True) is None


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_curve_that_has_not_moved_begins_to_with_what_is_left_of_its_epochs(noise):
    dice = Random(1)
    values = [(float(k), 0.5 + dice.uniform(-noise, noise)) for k in range(1, 80)]
    for seen in (20, 60, 79):
        found = outlook(values[:seen], 80, rises=True)
        assert 1 - seen / 80 - 0.02 < chance(found, 0.6) < 1 - seen / 160
        assert chance(found, 0.4) > 0.85


def test_a_curve_that_has_moved_goes_on_as_it_did():
    found = outlook([(float(k), 0.9 - 0.8 / k) for k in range(1, 21)], 80, rises=True)
    assert found.begins == 0.0
    assert chance(found, 0.99) < 0.02


def test_a_rising_loss_does_not_reach_a_low_one():
    found = outlook([(float(k), 1.0 + 0.05 * k) for k in range(1, 21)], 80, rises=False)
    assert chance(found, 0.2) < 0.05


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=ENOUGH, max_size=40), st.integers(1, 100), st.booleans())
def test_any_curve_gives_probabilities(values, ahead, rises):
    found = outlook([(float(k), v) for k, v in enumerate(values, 1)], len(values) + ahead, rises)
    chances = found.reaches([-1e7, *values, 1e7])
    assert np.isfinite(chances).all()
    assert (chances >= 0).all()
    assert (chances <= 1 + 1e-9).all()


def test_the_posterior_prefers_the_family_that_the_points_come_from():
    for family in ("exponential", "logarithm"):
        weights = dict(zip(FAMILIES, family_weights(outlook(points(CURVES[family], 60), 90, True, EQUAL)), strict=True))
        assert weights[family] == max(weights.values())


def test_weights_are_learned_from_curves_by_model_and_no_family_dies_out():
    one = [(points(CURVES["exponential"], 60, 0.002, seed), 61.0, True) for seed in range(5)]
    weights = dict(zip(FAMILIES, learned([one]), strict=True))
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["exponential"] > 1.5 / len(FAMILIES)
    assert min(weights.values()) > 0.02
    assert sum(PRIOR) == pytest.approx(1, abs=0.01)


def test_a_belief_tells_the_chance_of_the_goal_itself():
    values = [v for _k, v in points(CURVES["exponential"], 40)]
    beliefs = believed(values, target=0.97)
    found = outlook([(float(k), v) for k, v in enumerate(values, 1)], 80, rises=True)
    assert beliefs.reach.at(0.97).mean == pytest.approx(chance(found, 0.97))


def test_points_of_a_profile_beyond_the_present_epoch_do_not_count():
    values = [v for _k, v in points(CURVES["power"], 60)]
    assert believed(values, epoch=20).reach == believed(values[:20]).reach


def test_values_that_are_no_numbers_say_nothing():
    values = [v for _k, v in points(CURVES["power"], 20)]
    for wrong in (nan, inf):
        assert believed([*values, wrong]).reach is None
    assert refitted(NO_BELIEFS, parse("acc >= 0.9"), 3, 80) is NO_BELIEFS


def test_what_was_believed_is_forgotten_when_it_no_longer_holds():
    beliefs = believed([v for _k, v in points(CURVES["power"], 20)])
    assert beliefs.reach is not None
    assert refitted(beliefs, parse("acc >= 0.9"), 20, 20).reach is None
