"""Rotary's workloads: what Tables 3.1 and 3.2 say, and that past jobs are not the jobs themselves."""

from collections import Counter

import pytest

from hocket.model.criterion import Convergence, Goal, RunTime
from hocket.model.event import PastJobsGiven
from hocket.model.job import Kind
from hocket.workloads import spec
from hocket.workloads.rotary import (
    CLASSES,
    CORES,
    GAP_S,
    SHARES,
    class_of,
    measured_queries,
    rotary_workload,
    stretch,
    true_accuracy,
)


def test_table_3_1_has_30_queries_by_class():
    found = rotary_workload("aqp")
    assert Counter(s.job.id.partition("-")[0] for s in found.submissions) == {"light": 12, "medium": 9, "heavy": 9}
    assert all(s.job.kind is Kind.QUERY and isinstance(s.job.criterion, Goal) for s in found.submissions)


def test_table_3_2_has_60_20_20_percent_of_criteria():
    kinds = Counter(type(s.job.criterion) for s in rotary_workload("dlt").submissions)
    assert kinds == {Convergence: 18, Goal: 6, RunTime: 6}


def test_all_queries_are_measured_and_in_one_class():
    assert sorted(n for numbers in CLASSES.values() for n in numbers) == list(range(1, 23))
    assert set(measured_queries()) == {f"q{n}" for n in range(1, 23)}
    assert class_of("q9") == "heavy"


def test_a_load_of_1_would_just_keep_all_cores_busy():
    mean_s = sum(
        SHARES[name] * sum(measured_queries()[f"q{n}"].orders[0][-1].cpu_s for n in numbers) / len(numbers)
        for name, numbers in CLASSES.items()
    )
    assert mean_s * stretch(1.0) == pytest.approx(GAP_S * CORES)


def test_a_query_has_read_all_and_is_exact_at_the_end():
    for submission in rotary_workload("aqp").submissions:
        metrics = submission.truth.metrics_at(submission.truth.epochs)
        assert metrics == {"acc": 1.0, "fraction": 1.0}
    assert true_accuracy("q5", 0, 1.0) == 1.0
    assert true_accuracy("q5", 0, 0.0) == 0.0


def test_past_queries_are_in_another_order_of_their_data():
    given = rotary_workload("aqp").changes[0]
    assert isinstance(given, PastJobsGiven)
    past = {p.model: p for p in given.jobs}
    for name, query in measured_queries().items():
        if len(query.orders) > 1:
            assert past[name].points == tuple((b.fraction, b.promised or 0.0) for b in query.orders[1])


def test_it_is_a_workload_of_the_command_line():
    assert len(spec.load("rotary?which=dlt&only=runtime&past=no").submissions) == 30
    assert spec.load("rotary?which=dlt&past=no").changes == ()
