"""Due shares are those of weighted dominant resource fairness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.reports.fairness import Sort, due_shares

GPUS_ONLY = (10.0, 0.0, 0.0, 0.0)


def gpus(n: float, weight: float = 1.0) -> Sort:
    return Sort((n, 0.0, 0.0, 0.0), weight)


def test_small_jobs_get_all_they_ask_for_and_the_rest_is_shared() -> None:
    due = due_shares({gpus(1): 2, gpus(8): 2}, GPUS_ONLY)
    assert due == {gpus(1): pytest.approx(0.1), gpus(8): pytest.approx(0.4)}


def test_weights_scale_shares() -> None:
    due = due_shares({gpus(10, 3.0): 1, gpus(10, 1.0): 1}, GPUS_ONLY)
    assert due == {gpus(10, 3.0): pytest.approx(0.75), gpus(10, 1.0): pytest.approx(0.25)}


def test_the_example_of_the_drf_paper() -> None:
    # 9 CPUs and 18 GB; A's tasks take 1 CPU and 4 GB, B's 3 CPUs and 1 GB: A runs 3 tasks and B 2, 2/3 each.
    a, b = Sort((0.0, 100.0, 400.0, 0.0), 1.0), Sort((0.0, 300.0, 100.0, 0.0), 1.0)
    due = due_shares({a: 1, b: 1}, (0.0, 9.0, 18.0, 0.0))
    assert due == {a: pytest.approx(2 / 3), b: pytest.approx(2 / 3)}


def test_a_job_that_needs_nothing_of_a_spent_resource_grows_on() -> None:
    gpu_job, core_job = gpus(10), Sort((0.0, 8.0, 0.0, 0.0), 1.0)
    due = due_shares({gpu_job: 2, core_job: 1}, (10.0, 8.0, 0.0, 0.0))
    assert due == {gpu_job: pytest.approx(0.5), core_job: pytest.approx(1.0)}


def test_what_the_cluster_lacks_is_due_to_no_job() -> None:
    assert due_shares({gpus(1): 1}, (0.0, 8.0, 0.0, 0.0)) == {gpus(1): 0.0}


SORTS = st.builds(
    Sort,
    st.tuples(*(st.one_of(st.just(0.0), st.floats(0.1, 50)) for _ in range(4))),
    st.floats(0.1, 10),
)


@settings(max_examples=50, deadline=None)  # a busy machine is not a slow function
@given(st.dictionaries(SORTS, st.integers(1, 50), max_size=8), st.tuples(*(st.floats(1, 100) for _ in range(4))))
def test_due_shares_fit_the_cluster_and_leave_nothing_that_a_job_could_use(
    counts: dict[Sort, int], capacity: tuple[float, float, float, float]
) -> None:
    due = due_shares(counts, capacity)
    assert due.keys() == counts.keys()
    used = [0.0] * 4
    for sort, share in due.items():
        whole = max(d / c for d, c in zip(sort.demand, capacity, strict=True))
        assert share <= whole * (1 + 1e-6)
        if whole:
            used = [
                u + counts[sort] * share / whole * d / c for u, d, c in zip(used, sort.demand, capacity, strict=True)
            ]
    assert max(used, default=0.0) <= 1 + 1e-6
    for sort, share in due.items():
        whole = max(d / c for d, c in zip(sort.demand, capacity, strict=True))
        spent = any(u > 1 - 1e-6 for u, d in zip(used, sort.demand, strict=True) if d)
        assert spent or share == pytest.approx(whole)
