"""TEE: epochs until a criterion holds, from a job's own values and the curves of similar past jobs."""

from math import inf, nan

import pytest

from hocket.estimators.training_epochs import as_printed, chances
from hocket.model.criterion import Convergence, Goal
from hocket.model.curve import Curve

GOAL = Goal("acc", ">=", 0.9)


def curve(final: float, half: float, epochs: int = 30, start: float = 0.1) -> tuple[tuple[float, float], ...]:
    return tuple((float(k), final - (final - start) * 2 ** (-k / half)) for k in range(1, epochs + 1))


def median(found: Curve | None) -> float:
    assert found is not None
    at = found.first_at_least(0.5)
    return inf if at is None else at


def test_probabilities_rise_with_epochs_and_stay_within_0_and_1():
    found = chances(curve(0.95, 3)[:4], (), GOAL, 30)
    assert found is not None
    values = [p.mean for p in found.points]
    assert values == sorted(values)
    assert 0 <= values[0] <= values[-1] <= 1
    assert found.points[-1].x == 30


def test_without_values_and_past_jobs_nothing_is_foretold():
    assert chances((), (), GOAL, 30) is None
    assert as_printed((), (), GOAL) is None


def test_a_value_that_is_not_finite_foretells_nothing():
    assert chances(((1.0, nan),), (), GOAL, 30) is None


def test_a_job_at_its_last_epoch_has_nothing_to_foretell():
    assert chances(curve(0.95, 3)[:30], (), GOAL, 30) is None


def test_a_similar_past_job_foretells_when_the_goal_is_reached():
    truth = next(k for k, v in curve(0.95, 3) if v >= 0.9)
    alike = median(chances(curve(0.95, 3)[:2], ((1.0, curve(0.95, 3)),), GOAL, 30))
    assert abs(alike - truth) <= 2


def test_the_more_alike_a_past_job_is_the_more_certain_is_what_it_foretells():
    def width(alike: float) -> float:
        found = chances(curve(0.95, 3)[:1], ((alike, curve(0.95, 3)),), GOAL, 30)
        assert found is not None
        low, high = found.first_at_least(0.1), found.first_at_least(0.9)
        return (30 if high is None else high) - (30 if low is None else low)

    assert width(1.0) < width(0.2)


def test_a_goal_beyond_where_the_metric_levels_off_is_unlikely():
    flat = curve(0.7, 1, 15)
    found = chances(flat, (), GOAL, 30)
    assert found is not None
    assert found.points[-1].mean < 0.1


def test_more_values_bring_the_estimate_nearer_to_the_truth():
    whole = curve(0.97, 4, 60)
    truth = next(k for k, v in whole if v >= 0.9)
    early, late = (median(chances(whole[:seen], (), GOAL, 60)) for seen in (2, 12))
    assert abs(late - truth) < abs(early - truth)
    assert abs(late - truth) <= 4


def test_metrics_that_fall_are_foretold_as_those_that_rise():
    rising, falling = curve(0.95, 3)[:6], tuple((k, 1 - v) for k, v in curve(0.95, 3)[:6])
    up = median(chances(rising, (), GOAL, 30))
    down = median(chances(falling, (), Goal("error", "<=", 0.1), 30))
    assert abs(up - down) <= 4  # What is assumed of the first value differs.


def test_small_changes_are_foretold_later_than_large_ones():
    seen = curve(0.95, 4)[:3]
    coarse = median(chances(seen, (), Convergence("acc", 0.05), 60))
    fine = median(chances(seen, (), Convergence("acc", 0.002), 60))
    assert coarse < fine


def test_a_metric_cannot_settle_within_one_epoch():
    found = chances((), ((1.0, curve(0.95, 3)),), Convergence("acc", 0.5), 1)
    assert found is not None
    assert [p.mean for p in found.points] == [0.0]


def test_the_printed_regression_weighs_all_past_values_as_one_of_the_jobs_own():
    own = tuple((float(k), 0.95 - 0.5 / k) for k in range(1, 40))
    slow = tuple((float(k), 0.3) for k in range(1, 40))
    alone = as_printed(own, (), GOAL)
    both = as_printed(own, ((1.0, slow),), GOAL)
    assert alone == pytest.approx(10.0)
    assert both is not None
    assert alone < both < 20


def test_the_printed_regression_says_never_for_a_goal_above_its_limit():
    assert as_printed(tuple((float(k), 0.8 - 0.5 / k) for k in range(1, 6)), (), GOAL) == inf


def test_the_printed_regression_finds_when_the_metric_changes_little():
    points = tuple((float(k), 0.9 - 0.6 / k) for k in range(1, 6))
    # 0.6 / (k (k - 1)) = 0.05 at k = 4.
    assert as_printed(points, (), Convergence("acc", 0.05)) == pytest.approx(4.0)
