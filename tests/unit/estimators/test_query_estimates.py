"""What is estimated of a query: its progress by run time, its error by what it has read, and its memory."""

import json
from math import log, nan, sqrt

import pytest

from hocket.estimators import query_error, query_memory
from hocket.estimators.query_progress import progress
from hocket.model.curve import Estimate


def test_accuracy_is_a_line_over_run_time():
    found = progress([(10, 0.2), (20, 0.4), (30, 0.6)], [], 100.0)
    assert found is not None
    assert found.at(40.0).mean == pytest.approx(0.8)


def test_all_past_results_together_weigh_as_one_of_the_querys_own():
    # At the same moment: one result of 0.9, and fifty of a past query of 0.1.
    found = progress([(10, 0.9)], [(1.0, [(10, 0.1)] * 50)], 100.0)
    assert found is not None
    assert found.at(10.0).mean == pytest.approx(0.5)


def test_the_past_alone_gives_the_first_estimate_and_nothing_gives_none():
    found = progress([], [(0.5, [(0, 0.0), (10, 0.5)])], 20.0)
    assert found is not None
    assert found.at(20.0).mean == pytest.approx(1.0)
    assert progress([], [], 20.0) is None
    assert progress([(1.0, nan)], [], 20.0) is None


def answers(c: float, *shares: float) -> list[tuple[float, float]]:
    return [(f, c * sqrt((1 - f) / f)) for f in shares]


def test_the_constant_of_the_error_is_found_from_a_few_answers():
    found = query_error.constant(answers(0.05, 0.03, 0.06, 0.12))
    assert found.mean == pytest.approx(log(0.05), abs=0.15)


def test_the_share_to_read_follows_from_the_constant():
    assert query_error.share_for(0.05, 0.05) == pytest.approx(0.5)
    assert query_error.error_after(0.05, 0.5) == pytest.approx(0.05)
    assert query_error.share_for(0.05, 0.0) == 1.0


def test_a_goal_is_met_when_all_is_read_at_the_latest():
    found = query_error.chances(query_error.constant(answers(0.5, 0.1)), 0.01, 0.1)
    assert found is not None
    assert found.points[-1] == (found.points[-1].__class__(1.0, 1.0))
    assert found.at(0.5).mean < 0.1


def test_what_was_not_enough_counts_as_not_enough():
    log_c = Estimate(log(0.05), 0.3)
    found = query_error.chances(log_c, 0.05, 0.5)
    assert found is not None
    assert found.at(0.5).mean == 0.0
    assert query_error.chances(log_c, 0.05, 1.0) is None


def test_a_goal_of_no_error_needs_all_data():
    found = query_error.chances(Estimate(log(0.01), 0.3), 0.0, 0.2)
    assert found is not None
    assert found.first_at_least(0.99) == pytest.approx(0.992, abs=0.01)


def test_chances_rise_where_batches_end():
    log_c = Estimate(log(0.05), 0.3)
    all_along, found = (
        query_error.chances(log_c, 0.05, 0.125),
        query_error.chances(log_c, 0.05, 0.125, (0.25, 0.5, 1.0)),
    )
    assert all_along is not None
    assert found is not None
    assert found.at(0.24).mean == 0.0 < all_along.at(0.24).mean
    assert found.at(0.25).mean == found.at(0.49).mean == pytest.approx(all_along.at(0.25).mean)
    assert found.at(0.5).mean == found.at(0.99).mean == pytest.approx(all_along.at(0.5).mean)
    assert found.at(1.0).mean == 1.0
    assert found.first_at_least(0.4) == pytest.approx(0.5)


def test_a_goal_of_no_error_is_met_by_the_last_batch():
    found = query_error.chances(Estimate(log(0.01), 0.3), 0.0, 0.25, (0.5, 1.0))
    assert found is not None
    assert (found.at(0.99).mean, found.at(1.0).mean) == (0.0, 1.0)


def test_batches_double_unless_a_past_query_like_it_answered_elsewhere():
    assert query_error.batch_ends(0.125, []) == (0.25, 0.5, 1.0)
    assert query_error.batch_ends(0.125, [(0.5, [0.3, 1.0])]) == (0.25, 0.5, 1.0)
    assert query_error.batch_ends(0.125, [(0.5, [0.2, 1.0]), (0.95, [0.1, 0.3, 1.0])]) == (0.3, 1.0)
    assert query_error.batch_ends(0.0, [(1.0, [1.0])]) == (1.0,)  # It promised nothing before.
    assert query_error.batch_ends(0.0, [(1.0, [0.0625, 0.125])]) == (0.0625, 0.125, 0.25, 0.5, 1.0)  # Its goal was met.
    assert query_error.batch_ends(0.25, [(1.0, [0.0625, 0.125])]) == (0.5, 1.0)
    assert query_error.batch_ends(0.0, []) == ()
    assert query_error.batch_ends(0.6, []) == (1.0,)


def test_answers_that_say_nothing_leave_what_is_known_of_past_queries():
    past = Estimate(log(0.1), 0.4)
    assert query_error.constant([(1.0, 0.0), (0.5, nan), (0.0, 0.3)], past) == past


def plan(name: str, rows: int, *children: dict[str, object], columns: int = 2) -> dict[str, object]:
    info = {"Estimated Cardinality": str(rows), "Projections": ["c"] * columns}
    return {"name": name, "children": list(children), "extra_info": info}


def held(root: dict[str, object]) -> float:
    return query_memory.held_mib(json.dumps([root]))


def test_a_join_holds_its_build_side_and_no_more():
    big, small = plan("SEQ_SCAN", 1 << 20), plan("SEQ_SCAN", 1 << 16)
    assert held(plan("HASH_JOIN", 1 << 20, big, small)) == pytest.approx((1 << 16) * 2 * 16 / (1 << 20))


def test_a_filter_holds_nothing_and_a_sort_all_of_its_rows():
    scan = plan("SEQ_SCAN", 1 << 20)
    assert held(plan("FILTER", 1 << 10, scan)) == 0.0
    assert held(plan("ORDER_BY", 1 << 20, scan)) == pytest.approx(32.0)


def test_an_estimate_beyond_all_rows_below_is_not_believed():
    scan = plan("SEQ_SCAN", 1000)
    assert held(plan("HASH_GROUP_BY", 10**12, scan)) == pytest.approx(1000 * 2 * 16 / (1 << 20))


def test_a_plan_that_is_no_json_is_refused():
    with pytest.raises(ValueError, match="no JSON"):
        query_memory.held_mib("Total Time: 3 s")


def test_the_law_of_memory_is_fitted_to_measured_queries():
    law = query_memory.fitted([(h, 100 + 2 * h) for h in (0.0, 10.0, 200.0)])
    assert law.base_mib == pytest.approx(100)
    assert law.factor == pytest.approx(2)
    assert law.of(50).mean == pytest.approx(200)
    with pytest.raises(ValueError, match="at least 2"):
        query_memory.fitted([(1.0, 1.0)])
