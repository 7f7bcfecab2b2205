"""Rotary's workloads: what Tables 3.1 and 3.2 say, and that past jobs are not the jobs themselves."""

from collections import Counter
from itertools import pairwise

import pytest
from msgspec.structs import replace

from hocket.model.criterion import Convergence, Goal, RunTime
from hocket.model.event import PastJobsGiven
from hocket.model.job import Kind
from hocket.workloads import rotary, spec
from hocket.workloads.errors import WorkloadError
from hocket.workloads.rotary import (
    CLASSES,
    CORES,
    GAP_S,
    SHARES,
    class_of,
    curve_of_batches,
    measured_queries,
    query_truth,
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


def test_a_query_without_intervals_attains_only_when_all_is_read():
    refused_live = ("q2", "q3", "q16", "q18", "q20")  # final rows, or a column without an interval
    for query in refused_live:
        truth = query_truth(query, 0, 1.0, "intervals")
        assert truth.metrics_at(0.999 * truth.epochs)["acc"] == 0.0
        assert truth.metrics_at(truth.epochs)["acc"] == 1.0


def test_a_query_says_what_it_said_after_its_last_batch_until_the_next_is_done():
    measured = measured_queries()["q5"].orders[0]
    truth = query_truth("q5", 0, 1.0, "intervals")
    for before, after in pairwise(measured):
        at = truth.epochs * after.cpu_s / measured[-1].cpu_s
        assert truth.metrics_at(0.999 * at) == {"acc": before.promised or 0.0, "fraction": before.fraction}
        assert truth.metrics_at(at + 1e-4)["acc"] == pytest.approx(after.promised or 0.0, abs=1e-3)


def test_batches_that_take_no_time_keep_the_order_of_a_curve():
    found = curve_of_batches([0.0, 0.00005, 20.0], [0.5, 0.6, 1.0])
    assert [p.x for p in found.points] == sorted({p.x for p in found.points})
    assert (found.at(1.0).mean, found.at(20.0).mean) == (0.6, 1.0)


def test_of_batches_that_were_reported_together_the_last_is_said_at_the_end():
    found = curve_of_batches([5.0, 20.0, 20.0, 20.0], [0.5, 0.6, 0.7, 1.0])
    assert (found.at(19.9).mean, found.at(20.0).mean) == (0.5, 1.0)
    assert [p.x for p in found.points] == sorted({p.x for p in found.points})


def test_queries_behave_as_they_were_measured_at_a_scale(monkeypatch):
    longer = {
        name: replace(query, orders=tuple(tuple(replace(b, cpu_s=3 * b.cpu_s) for b in o) for o in query.orders))
        for name, query in measured_queries().items()
    }
    longer["q9"] = replace(longer["q9"], orders=(longer["q9"].orders[0][-1:],))
    monkeypatch.setattr(rotary, "_table", lambda known=rotary._table(): {**known, 3.0: longer})
    rotary.stretch.cache_clear()
    assert rotary.measured_scales() == (1.0, 3.0, 10.0)
    assert stretch(1.0, 3.0) == pytest.approx(stretch(1.0) / 3)
    assert query_truth("q5", 0, 1.0, "intervals", 3.0).run_s == pytest.approx(
        query_truth("q5", 0, 1.0, "intervals").run_s
    )
    assert query_truth("q9", 0, 1.0, "intervals", 3.0).metrics_at(19.0)["fraction"] == 0.0  # all at once there
    found = spec.load("rotary?scale=3&only=heavy")
    assert {s.job.model for s in found.submissions} <= {f"q{n}" for n in CLASSES["heavy"]}
    assert any(s.truth.quality.points[-2].mean == 0.0 for s in found.submissions if s.job.model == "q9")
    with pytest.raises(WorkloadError, match=r"scale must be one that was measured .*, not 7; .*--scale 7"):
        rotary_workload("aqp", scale=7.0)


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


@pytest.mark.parametrize(
    ("options", "why"),
    [("which=dlt&scale=10", "scale=10 is for queries"), ("curves=x.csv", "curves=x.csv is for training")],
)
def test_what_the_other_kind_of_job_needs_is_refused(options: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        spec.load(f"rotary?{options}")
