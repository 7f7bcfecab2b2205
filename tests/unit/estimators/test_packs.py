"""What companions cost, learned from measured steps."""

from hocket.estimators.packs import slowdown


def test_nothing_is_believed_where_no_model_had_company():
    assert slowdown([]) is None
    assert slowdown([(0.0, 1.0), (0.3, 1.1)]) is None


def test_the_mean_counts_by_the_number_of_companions_and_alone_is_one():
    curve = slowdown([(3.0, 2.0), (3.2, 3.0), (7.0, 5.0)])
    assert [(p.x, p.mean, p.seen) for p in curve.points] == [(0.0, 1.0, 0), (3.0, 2.5, 2), (7.0, 5.0, 1)]
    assert curve.at(5).mean == 3.75, "in between"


def test_a_measurement_that_makes_no_sense_is_left_out():
    assert slowdown([(2.0, 0.0), (2.0, -1.0)]) is None
