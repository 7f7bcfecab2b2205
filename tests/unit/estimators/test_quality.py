"""Epochs to a goal, from the metric seen so far."""

from random import Random

import numpy as np
import pytest

from hocket.estimators.quality import fit, nonnegative, refitted
from hocket.model import Beliefs, Curve, Estimate, Point
from hocket.model.criterion import parse
from hocket.model.event import EpochEnded, JobSubmitted
from hocket.policies import find
from hocket.testing.builders import cluster, job
from hocket.testing.harness import Harness


def test_two_coefficients_are_those_of_non_negative_least_squares():
    from scipy.optimize import nnls  # not above: to load it takes a second

    dice = Random(1)
    on_an_edge = 0
    for _ in range(300):
        rows = np.array([[dice.gauss(0, 1), dice.gauss(0, 1)] for _ in range(dice.randint(2, 9))])
        wanted = np.array([dice.gauss(0, 1) for _ in rows])
        expected, _residual = nnls(rows, wanted)
        (aa, ab), (_ab, bb) = rows.T @ rows
        ay, by = rows.T @ wanted
        assert nonnegative(aa, ab, bb, ay, by) == pytest.approx(tuple(expected), abs=1e-6)
        on_an_edge += 0.0 in expected
    assert on_an_edge > 50


@pytest.mark.parametrize(("b0", "b1", "b2"), [(0.3, 1.2, 0.05), (1.0, 1.0, 0.0), (0.05, 1.1, 0.2)])
def test_a_curve_of_that_form_is_found_again(b0, b1, b2):
    found = fit([(k, 1 / (b0 * k + b1) + b2) for k in range(1, 12)])
    missing = 1 / (b0 * 40 + b1) + b2
    assert found.rms < 1e-4
    assert found.epochs_to(missing) == pytest.approx(40, rel=0.05)


def test_values_that_do_not_fall_have_no_end():
    found = fit([(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5)])
    assert found is None or found.epochs_to(0.3) is None


def reports(goal, values, beliefs=None, epoch_s=10.0):
    known = beliefs or Beliefs()
    for epoch, value in enumerate(values, 1):
        known = refitted(known, parse(goal), epoch, value, epoch * epoch_s)
    return known


def test_the_prediction_gets_better_as_points_arrive():
    accuracy = [0.9 - 0.8 * 2 ** (-k / 6) for k in range(1, 31)]  # an exponential: no curve of the fitted form
    truth_s = 10.0 * next(k for k, a in enumerate(accuracy, 1) if a >= 0.85)
    errors = [abs(reports("acc >= 85%", accuracy[:n]).run_s.mean - truth_s) / truth_s for n in (8, 16, 23)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.3


def test_a_loss_that_shall_fall_is_fitted_as_it_is():
    loss = [1 / (0.4 * k + 0.5) + 0.1 for k in range(1, 9)]
    assert reports("loss <= 0.3", loss).run_s.mean == pytest.approx(120.0, abs=10.0)


def test_without_enough_points_or_hope_what_was_believed_stays():
    before = Beliefs(Estimate(777.0), 4)
    assert reports("acc >= 85%", [0.1, 0.2], before).run_s == before.run_s
    assert reports("acc >= 85%", [0.3] * 8, before).run_s == before.run_s
    assert reports("acc >= 85% within 12 epochs", [0.3, 0.301] * 4, before).run_s.mean == pytest.approx(120.0)


def test_points_of_a_profile_count_until_the_job_has_its_own():
    profile = Curve(tuple(Point(float(k), 1 - 1 / (0.5 * k + 1), 0.0, 1) for k in range(1, 6)))
    known = refitted(Beliefs(quality=profile), parse("acc >= 90%"), 1, 1 - 1 / 1.5, 10.0)
    assert known.run_s.mean == pytest.approx(180.0, abs=20.0)
    assert known.quality.points[0].x == 1.0
    assert known.quality.points[0].seen


def test_what_is_foreseen_is_no_observation():
    known = reports("acc >= 90%", [1 - 1 / (0.5 * k + 1) for k in range(1, 6)])
    assert [p.x for p in known.quality.points if p.seen] == [1, 2, 3, 4, 5]
    assert known.quality.points[-1].x > 5
    assert not known.quality.points[-1].seen


def test_the_fold_refits_only_for_policies_that_read_beliefs():
    for policy, learns in (("srtf", True), ("las", False)):
        bound = find(policy).bound()
        harness = Harness.of(bound, cluster("1x1"))
        harness.controller.state.learns = bound.needs["learns"]
        harness.tell(JobSubmitted(0.0, job("a", criterion=parse("acc >= 90%"))))
        harness.answer()
        for epoch in range(1, 6):
            harness.tell(EpochEnded(10.0 * epoch, "a", epoch, {"acc": 1 - 1 / (0.5 * epoch + 1)}))
        assert (harness.snapshot.jobs["a"].beliefs.run_s is not None) is learns
