"""How fast at a size it never had? A law through what was seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.estimators.speed import ASSUMED_LOSS, curve, fit_loss, law

LOSSES = st.integers(0, 200).map(lambda n: n / 200)


def speeds_by(loss: float, *sizes: int, base: float = 1.0) -> dict[int, float]:
    return {n: base * law(n, loss) for n in sizes}


def test_the_law_lies_between_perfect_scaling_and_none() -> None:
    assert [law(n, 0.0) for n in (1, 2, 8)] == [1, 2, 8]
    assert [law(n, 1.0) for n in (1, 2, 8)] == [1, 1, 1]
    assert law(8, 0.05) == pytest.approx(8 / 1.35)


@given(LOSSES, st.floats(0.01, 100.0))
def test_a_fit_finds_the_law_that_made_the_speeds(loss: float, base: float) -> None:
    assert fit_loss([speeds_by(loss, 1, 2, 4, 8, base=base)]) == pytest.approx(loss)


def test_jobs_of_one_size_tell_nothing_about_others() -> None:
    assert fit_loss([]) is None
    assert fit_loss([{4: 2.0}, {}, {8: 3.0}]) is None


def test_a_speed_of_nothing_is_no_observation() -> None:
    assert fit_loss([{1: 1.0, 2: 0.0}]) is None


def test_a_fit_lies_between_jobs_that_differ() -> None:
    loss = fit_loss([speeds_by(0.02, 1, 8), speeds_by(0.2, 1, 8)])
    assert loss is not None
    assert 0.02 < loss < 0.2


def test_a_job_that_runs_faster_than_its_size_counts_as_perfect() -> None:
    assert fit_loss([{1: 1.0, 2: 2.5}]) == 0.0


def test_a_curve_keeps_what_was_seen_and_fills_in_the_rest() -> None:
    found = curve({2: 10.0, 4: 18.0}, (1, 2, 4, 8), reference=2, loss=0.1)
    assert found.at(2).mean == 1.0
    assert found.at(4).mean == pytest.approx(1.8)  # as seen, not law(4)/law(2)
    assert found.at(8).mean == pytest.approx(law(8, 0.1) / law(2, 0.1))
    assert [bool(point.seen) for point in found.points] == [False, True, True, False]


def test_only_sizes_never_run_are_unsure() -> None:
    found = curve({2: 10.0}, (1, 2, 4), reference=2, loss=ASSUMED_LOSS)
    assert found.at(2).sd == 0.0
    assert found.at(1).sd > 0.0
    assert found.at(4).sd > found.at(1).sd


def test_without_any_speed_the_reference_stands_for_itself() -> None:
    found = curve({}, (1, 2, 4), reference=4, loss=0.0)
    assert [found.at(n).mean for n in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert found.points[-1].seen


@given(LOSSES, st.sampled_from([1, 2, 4, 8]))
def test_a_larger_size_is_never_slower(loss: float, reference: int) -> None:
    means = [p.mean for p in curve({}, (1, 2, 4, 8, 16), reference, loss).points]
    assert means == sorted(means)
    assert all(mean > 0 for mean in means)
